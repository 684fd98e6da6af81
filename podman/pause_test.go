package podman

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

func TestAPausedSandboxGoesOn(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	resume, err := s.(sandbox.Pauser).Pause(ctx)
	require.NoError(t, err)
	require.Equal(t, "paused", server.Containers()[0].State)
	cancel()
	resume()
	resume()
	require.Equal(t, "running", server.Containers()[0].State, "also when the caller is gone")
	require.Equal(t, 1, server.Count("POST", "/unpause"))
}

func TestAHostThatCannotPauseSaysSo(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	server.Fault("POST", "/pause", podmantest.Fails(500, "can not pause containers on rootless containers with cgroup V1"))
	_, err = s.(sandbox.Pauser).Pause(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnsupported)
}
