package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

func said(t *testing.T, l *liveOutput, text string) {
	t.Helper()
	for _, p := range []evaltool.Part{
		{Stdout: text}, {Stderr: text}, {Shown: &evaltool.Object{Text: text}}, {Raised: &evaltool.Raised{Name: text, Value: text, Traceback: text}},
	} {
		l.part(p)
	}
	require.NoError(t, l.end(&tool.Result{Value: map[string]string{"value_repr": text, "message": text, "status": "exception"}}))
}

// TestAnEvaluationCantSteerATerminal: its output, value and errors are code's own text.
func TestAnEvaluationCantSteerATerminal(t *testing.T) {
	const steers = "a\x1b]0;title\x07\x1b[2J\r\u202eb\u009b31m\n"
	var out, problems bytes.Buffer
	said(t, &liveOutput{out: &out, err: &problems}, steers)
	for _, text := range []string{out.String(), problems.String()} {
		assert.NotContains(t, text, "\x1b")
		assert.NotContains(t, text, "\u202e")
		assert.NotContains(t, text, "\r")
		assert.Contains(t, text, `a\x1b]0;title`)
	}
	var file bytes.Buffer
	said(t, &liveOutput{out: &file, err: &problems, raw: true}, steers)
	assert.True(t, strings.HasPrefix(file.String(), steers), "a file gets what was printed")
	assert.NotContains(t, file.String()[len(steers):], "\x1b")
}
