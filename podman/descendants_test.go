package podman

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWhatAProcessLeftIsEnded, also when its parent has ended meanwhile.
func TestWhatAProcessLeftIsEnded(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sh -c 'echo; sleep 1000 & wait' & wait")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = out.Read(make([]byte, 1))
	require.NoError(t, err)

	left := descendants{}
	require.Eventually(t, func() bool { left.look(cmd.Process.Pid); return len(left) == 2 }, 30*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	left.kill()
	require.Empty(t, left)
	_, err = out.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "all have ended who could write")
	require.Error(t, cmd.Wait())
}
