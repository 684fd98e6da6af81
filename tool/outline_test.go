package tool_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/tool"
)

func TestAnOutlineHasNamesArgumentsAndTheFirstSentence(t *testing.T) {
	type params struct {
		Path string `json:"path" jsonschema:"a path"`
		Mode string `json:"mode,omitempty" jsonschema:"a mode"`
	}
	run := func(context.Context, params) (struct{}, error) { return struct{}{}, nil }
	set := tool.NewSet(
		tool.New(tool.Spec{Name: "put", Description: "Puts it there. More of it.\nAnd more."}, run),
		tool.New(tool.Spec{Name: "none", Description: "One line"}, func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil }),
	)
	assert.Equal(t, "- `put {path, mode?}`: Puts it there.\n- `none {}`: One line\n", tool.Outline(set))
}

func TestAFirstSentenceEndsAtASentence(t *testing.T) {
	for text, want := range map[string]string{
		"Reads e.g. a file. More.":             "Reads e.g. a file.",
		"Reads (e.g. Python). More.":           "Reads (e.g. Python).",
		"Lists names, sizes etc. and times. M": "Lists names, sizes etc. and times.",
		"Takes i.e. JSON, not YAML. More.":     "Takes i.e. JSON, not YAML.",
		"Version 1.5 of it. `x` is next.":      "Version 1.5 of it.",
		"Ends at 2. 3 follow.":                 "Ends at 2.",
		"Sees a. b stays":                      "Sees a. b stays",
		"No end":                               "No end",
		"One line.\nTwo. Three.":               "One line.",
		"Ends. \"Quoted\" next.":               "Ends.",
		"":                                     "",
	} {
		assert.Equal(t, want, tool.FirstSentence(text), text)
	}
}
