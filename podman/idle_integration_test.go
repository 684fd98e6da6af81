//go:build integration

package podman

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIdleServiceStaysForItsAgentsAndThenEnds(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "wp")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	h := newHost(t, &Options{RuntimeDir: filepath.Join(dir, "r"), idle: 2 * time.Second})
	s := h.create(h.spec("idle"))
	before := s.agent
	pid := servicePID(t, dir)
	ended := func() bool { return maker(pid) == "" }
	h.eng.Load().close() // only the attached agent is left
	require.Never(t, ended, 3*h.opts.idle, 100*time.Millisecond, "the service ended under its agent")
	out, _ := sh(t, s, "echo still here")
	require.Equal(t, "still here\n", out)
	require.Same(t, before, s.agent, "the agent was lost")
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, h.Close())
	require.Eventually(t, ended, 30*time.Second, 100*time.Millisecond, "the service stays")
}
