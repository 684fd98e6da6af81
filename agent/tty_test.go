package agent_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

func TestATerminalWithoutInputIsAtItsEnd(t *testing.T) {
	f := start(t)
	got := f.run(t, sandbox.Cmd{Argv: []string{"cat"}, TTY: &sandbox.WinSize{Cols: 80, Rows: 24}, Timeout: time.Minute})
	require.Equal(t, sandbox.StatusExited, got.Status)
}

func TestAProgramThatClosesItsTerminalIsNotHungUp(t *testing.T) {
	f := start(t)
	got := f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", "exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5"}, TTY: &sandbox.WinSize{Cols: 80, Rows: 24}})
	require.Equal(t, 5, got.ExitCode)
}
