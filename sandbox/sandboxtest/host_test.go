package sandboxtest_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/sandbox/sandboxtest"
)

var count atomic.Int64

func hostBackend(t *testing.T) (sandbox.Backend, sandbox.Spec) {
	spec := sandbox.Spec{ID: fmt.Sprintf("host-%d", count.Add(1)), Image: "host", Workspace: t.TempDir()}
	return sandboxtest.NewHost(), spec
}

func TestHostPassesTheSuite(t *testing.T) { sandboxtest.Suite(t, hostBackend, nil) }

func TestHostSaysThatItIsolatesNothing(t *testing.T) {
	backend, spec := hostBackend(t)
	box, err := backend.Create(context.Background(), spec)
	require.NoError(t, err)
	defer box.Close(context.Background())
	info, err := box.Info(context.Background())
	require.NoError(t, err)
	assert.Contains(t, info.Gaps[0], "nothing is isolated")
	for _, l := range info.Limits {
		assert.False(t, l.Enforced, l.Name)
	}
}

func TestHostRefusesStrictSinceItEnforcesNothing(t *testing.T) {
	backend, spec := hostBackend(t)
	spec.Strict = true
	_, err := backend.Create(context.Background(), spec)
	assert.ErrorIs(t, err, sandbox.ErrUnavailable)
}

func TestHostRefusesLinksThatLeaveTheWorkspace(t *testing.T) {
	backend, spec := hostBackend(t)
	box, err := backend.Create(context.Background(), spec)
	require.NoError(t, err)
	defer box.Close(context.Background())
	require.NoError(t, os.Symlink("/etc", spec.Workspace+"/out"))
	_, err = box.Run(context.Background(), sandbox.Cmd{Argv: []string{"true"}, Dir: "out"})
	assert.ErrorIs(t, err, sandbox.ErrInvalid)
}

func TestALostHostSandboxIsGoneForEveryone(t *testing.T) {
	host := sandboxtest.NewHost()
	_, spec := hostBackend(t)
	box, err := host.Create(context.Background(), spec)
	require.NoError(t, err)
	p, err := box.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	host.Lose(spec.ID)
	res, err := p.Wait(context.Background())
	require.NoError(t, err)
	assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
	_, err = box.Run(context.Background(), sandbox.Cmd{Argv: []string{"true"}})
	assert.ErrorIs(t, err, sandbox.ErrLost)
	_, err = host.Open(context.Background(), spec)
	assert.ErrorIs(t, err, sandbox.ErrNotFound)
}
