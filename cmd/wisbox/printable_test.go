package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// What a hostile program wrote into a result: an escape, its one-character form
// (C1), a delete, a turn of the text's direction.
const steering = "a\x1b[31m\u009b31m\x7f\u202eb\tc\nd"

func TestNothingThatIsPrintedAsJSONSteersATerminal(t *testing.T) {
	var out strings.Builder
	require.NoError(t, writeJSON(&out, map[string]string{"content": steering}))
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
