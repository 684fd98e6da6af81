package shelltool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// The program waits for its second line of input until the first has been reported, so progress
// must come while it runs.
func TestProgressTellsTheNewestOutputOfARunningProgram(t *testing.T) {
	b := newBench(t)
	told := make(chan string, 1000)
	ctx := tool.WithProgress(t.Context(), func(text string) { told <- text })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, err := b.tools.Call(ctx, "shell_execute", json.RawMessage(`{"script":"echo begun; echo oops >&2; until [ -e go ]; do sleep 0.05; done"}`))
		assert.NoError(t, err)
	}()
	for text := ""; !strings.Contains(text, "begun") || !strings.Contains(text, "oops"); {
		text = <-told
	}
	_, err := b.tools.Call(context.Background(), "shell_execute", json.RawMessage(`{"commands":["touch","go"]}`))
	require.NoError(t, err)
	<-ended
}

func TestProgressIsShort(t *testing.T) {
	b := newBench(t)
	longest, last := 0, ""
	ctx := tool.WithProgress(t.Context(), func(text string) { longest, last = max(longest, utf8.RuneCountInString(text)), text })
	_, err := b.tools.Call(ctx, "shell_execute", json.RawMessage(`{"script":"seq 100000"}`))
	require.NoError(t, err)
	assert.LessOrEqual(t, longest, 2000)
	assert.True(t, strings.HasSuffix(last, "99999\n100000\n"))
}
