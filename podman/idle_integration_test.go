//go:build integration

package podman

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnIdleServiceStaysForItsAgentsAndThenEnds takes three minutes.
func TestAnIdleServiceStaysForItsAgentsAndThenEnds(t *testing.T) {
	if os.Getenv("WISBOX_MEASURE") == "" {
		t.Skip("WISBOX_MEASURE is not set")
	}
	dir, err := os.MkdirTemp("/tmp", "wp")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	h := newHost(t, &Options{RuntimeDir: filepath.Join(dir, "r")})
	s := h.create(h.spec("idle"))
	before := s.agent
	pid := servicePID(t, dir)
	h.eng.Load().close() // only the attached agent is left
	time.Sleep(80 * time.Second)
	out, _ := sh(t, s, "echo still here")
	require.Equal(t, "still here\n", out)
	require.Same(t, before, s.agent, "the agent was lost")
	require.Equal(t, pid, servicePID(t, dir))
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, h.Close())
	require.Eventually(t, func() bool { return !alive(pid) }, 90*time.Second, time.Second, "the service ends")
}

func alive(pid int) bool {
	return maker(pid) != ""
}
