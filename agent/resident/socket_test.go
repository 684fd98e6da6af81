package resident_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/native"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// listening starts an agent that listens at a socket.
func listening(t *testing.T, socket string) *resident.Spawned {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "wisbox-resident-")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	path, err := native.Install(dir)
	require.NoError(t, err)
	argv := resident.ServeArgv("/usr/bin:/bin", socket)
	argv[2], argv[3] = dir, dir
	cmd := exec.Command(path, argv[1:]...)
	cmd.Stderr = os.Stderr
	s, err := resident.Spawn(cmd)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// TestAnAgentIsReachedByItsSocket and is waited for; one that takes the place of another that
// was killed is reached too.
func TestAnAgentIsReachedByItsSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	a := handle(t, resident.Options{Link: resident.Socket{Path: socket}})
	first := make(chan error, 1)
	go func() {
		first <- a.With(t.Context(), func(conn *agent.Conn) error { return conn.Ping(t.Context()) })
	}()
	one := listening(t, socket)
	require.NoError(t, <-first)
	conn, err := a.Conn(t.Context())
	require.NoError(t, err)
	assert.Contains(t, conn.Hello().Interfaces, "lo")

	process, err := os.FindProcess(one.PID())
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	<-conn.Done()
	listening(t, socket)
	require.NoError(t, a.With(t.Context(), func(conn *agent.Conn) error {
		res, err := conn.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
		assert.Equal(t, 0, res.ExitCode)
		return err
	}))
}

func TestAnAgentThatNeverListensEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := resident.Socket{Path: filepath.Join(t.TempDir(), "none")}.Dial(ctx)
	assert.ErrorIs(t, err, context.Canceled)
}

// TestAnAgentLeavesWithItsPrograms: they are lost, and it ends.
func TestAnAgentLeavesWithItsPrograms(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listening(t, socket)
	a := handle(t, resident.Options{Link: resident.Socket{Path: socket}})
	conn, err := a.Conn(t.Context())
	require.NoError(t, err)
	p, err := conn.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}, Lifetime: sandbox.LifetimeDetached})
	require.NoError(t, err)
	require.NoError(t, conn.Leave(t.Context()))
	res, err := p.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
}
