//go:build integration

package podman

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// TestSandboxesGoOnWhenTheIdleServiceHasEnded: their agents need none.
func TestSandboxesGoOnWhenTheIdleServiceHasEnded(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "wp")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	h := newHost(t, &Options{RuntimeDir: filepath.Join(dir, "r"), idle: 2 * time.Second})
	s := h.create(h.spec("idle"))
	before, err := s.agent.Conn(t.Context())
	require.NoError(t, err)
	pid := servicePID(t, dir)
	gone := func() bool { return maker(pid) == "" }
	got := sleeping(t, s)
	h.eng.Load().close()
	require.Eventually(t, gone, 30*time.Second, 100*time.Millisecond, "the service stays")
	out, _ := sh(t, s, "echo still here")
	require.Equal(t, "still here\n", out)
	now, err := s.agent.Conn(t.Context())
	require.NoError(t, err)
	require.Same(t, before, now, "the connection was lost")
	require.NoError(t, s.EndAll(t.Context(), sandbox.StatusDiskLimit))
	require.Equal(t, sandbox.StatusDiskLimit, ended(t, got).Status)
	require.NoError(t, s.Close(t.Context()), "another service is started")
}
