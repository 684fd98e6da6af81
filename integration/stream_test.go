package integration

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
)

// Output arrives while the code runs: the code waits for a file that the reader of its
// output creates.
func TestAnEvaluationIsFollowedWhileItRuns(t *testing.T) {
	s := open(t, nil)
	for _, state := range []string{"fresh", "kept"} {
		t.Run(state, func(t *testing.T) {
			code := "import os, time\nprint('one')\nwhile not os.path.exists('" + state + "'): time.sleep(.001)\ndisplay([1])\nprint('two')\nos.system('echo three; echo four >&2')\n{'a': 1}"
			var out, problems string
			var shown []*evaltool.Object
			var counts []int64
			res, err := s.Evaluate(t.Context(), evaltool.Run{Params: evaltool.Params{Code: code, State: state}}, func(p evaltool.Part) {
				if out += p.Stdout; out == "one\n" {
					assert.NoError(t, os.WriteFile(filepath.Join(s.WorkspacePath(), state), nil, 0o644))
				}
				problems += p.Stderr
				if p.Shown != nil {
					shown = append(shown, p.Shown)
				}
				if p.Count > 0 {
					counts = append(counts, p.Count)
				}
			})
			require.NoError(t, err)
			assert.False(t, res.Failed, res.Text)
			assert.Equal(t, "one\ntwo\nthree\n", out)
			assert.Equal(t, "four\n", problems)
			assert.Equal(t, []int64{1}, counts)
			require.Len(t, shown, 2)
			assert.JSONEq(t, `[1]`, string(shown[0].JSON))
			assert.JSONEq(t, `{"a":1}`, string(shown[1].JSON))
			assert.True(t, shown[1].Main)
		})
	}
}

// A reader that reads nothing delays nobody after the time limit, and the next evaluation has the names.
func TestAReaderWhoStallsEndsWithTheTimeLimit(t *testing.T) {
	s := open(t, nil)
	call(t, s, "evaluate_python", args{"code": "z = 5", "state": "kept"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stall, second := make(chan struct{}), 1.0
	done := make(chan error, 1)
	go func() {
		_, err := s.Evaluate(ctx, evaltool.Run{Params: evaltool.Params{Code: "while True: print('x' * 10_000)", State: "kept", Timeout: &second}}, func(evaltool.Part) { <-stall })
		done <- err
	}()
	assert.Equal(t, "5", call(t, s, "evaluate_python", args{"code": "z", "state": "kept"}).str("value_repr"))
	close(stall)
	assert.NoError(t, <-done)
}

// The command line prints the output of code as it arrives, also for a kept session.
func TestEvalPrintsWhileTheCodeRuns(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	for _, where := range [][]string{nil, {"--session", "box", "--keep"}} {
		code := "import sys, time\nfor line in range(3): print(line)\nwhile True: time.sleep(1)"
		cmd := h.command(append(append([]string{"eval", "python", "--timeout", "60"}, where...), code)...)
		if where != nil {
			cmd = h.command("eval", "python", "--session", "box", "--keep", code)
		}
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for _, want := range []string{"0", "1", "2"} {
			require.True(t, lines.Scan())
			assert.Equal(t, want, strings.TrimSpace(lines.Text()))
		}
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
	}
	h.do("session", "rm", "box")
}
