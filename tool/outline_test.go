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
