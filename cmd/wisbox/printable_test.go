package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/tool"
)

// A hostile program's text in a result: an escape, its one-character form (C1), a delete, a
// bidirectional control.
const steering = "a\x1b[31m\u009b31m\x7f\u202eb\tc\nd"

func TestNothingThatIsPrintedAsJSONSteersATerminal(t *testing.T) {
	var out strings.Builder
	require.NoError(t, streams.WriteJSON(&out, map[string]string{"content": steering}))
	assert.Equal(t, `{"content":"a\u001b[31m\u009b31m\u007f\u202eb\tc\nd"}`+"\n", out.String())
	var back map[string]string
	require.NoError(t, json.Unmarshal([]byte(out.String()), &back))
	assert.Equal(t, steering, back["content"])
}

func TestAValueThatAProgramChoseSteersNoTerminal(t *testing.T) {
	var out strings.Builder
	shown := &liveOutput{out: &out, err: &strings.Builder{}}
	require.NoError(t, shown.end(&tool.Result{Value: map[string]any{"value_repr": steering}}))
	assert.Equal(t, "a\\x1b[31m\\u009b31m\\x7f\\u202eb\tc\nd\n", out.String())
}

// TestWhatAnotherMachineSaysSteersNoTerminal in whichever field of an error or a table.
func TestWhatAnotherMachineSaysSteersNoTerminal(t *testing.T) {
	var out strings.Builder
	a := &app{out: &out, err: &out}
	a.printError(&tool.Error{Kind: steering, Field: "\x1b[2J", Message: steering})
	require.NoError(t, a.print(nil, func(w io.Writer) { _, _ = io.WriteString(w, steering) }))
	assert.NotContains(t, out.String(), "\x1b")
	assert.NotContains(t, out.String(), "\u202e")
}
