package agent_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

const (
	readSlack  = "/proc/self/timerslack_ns"
	usualSlack = "50000\n" // nanoseconds
)

// TestProgramsHaveTheUsualTimerSlack: that of our own processes' watchers is not handed on.
func TestProgramsHaveTheUsualTimerSlack(t *testing.T) {
	f := start(t)
	for range 3 {
		require.Equal(t, usualSlack, f.run(t, sandbox.Cmd{Argv: []string{"cat", readSlack}}).out)
	}
	out := &strings.Builder{}
	_, err := f.Run(t.Context(), sandbox.Cmd{
		Python:  &sandbox.PythonProgram{Name: "slack", Source: "def main(inp, out): out.write(open('" + readSlack + "','rb').read())"},
		Control: &sandbox.Control{In: strings.NewReader(""), Out: out},
	})
	require.NoError(t, err)
	require.Equal(t, usualSlack, out.String())
}

// TestTheRuntimesWatchersAreSpared: otherwise they wake up 20,000 times a second while programs run.
func TestTheRuntimesWatchersAreSpared(t *testing.T) {
	needsRoot(t)
	f := start(t)
	f.sh(t, "true")
	require.EventuallyWithT(t, func(t *assert.CollectT) { // monitors come and go, and begin as any process does
		for _, pid := range append(f.monitors(t), f.agentPID(t)) {
			threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			require.NoError(t, err)
			slacks := make([]string, len(threads))
			for i, thread := range threads {
				text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
				require.NoError(t, err)
				slacks[i] = strings.TrimSpace(string(text))
			}
			require.Contains(t, slacks, "10000000", "of process %d", pid)
			require.Contains(t, slacks, "50000", "of process %d", pid)
		}
	}, 30*time.Second, time.Millisecond)
}
