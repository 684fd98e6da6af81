package podman

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func pauserOf(t *testing.T, s sandbox.Sandbox) sandbox.Pauser {
	t.Helper()
	p, ok := sandbox.As[sandbox.Pauser](s)
	require.True(t, ok)
	return p
}

func TestAPausedSandboxGoesOn(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	p := pauserOf(t, s)
	require.NoError(t, p.Pause(t.Context()))
	require.Equal(t, "paused", server.Containers()[0].State)
	require.NoError(t, p.Resume(t.Context()))
	require.Equal(t, "running", server.Containers()[0].State)
	require.NoError(t, p.Pause(t.Context()))
	server.Fault("POST", "/pause", podmantest.Fails(500, "it is paused already"))
	require.NoError(t, p.Pause(t.Context()), "a stopped process can be paused")
	require.NoError(t, p.Resume(t.Context()))
}

func TestASandboxThatIsGoneWhilePausedIsLost(t *testing.T) {
	b, _ := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	p := pauserOf(t, s)
	require.NoError(t, p.Pause(t.Context()))
	require.NoError(t, b.Remove(t.Context(), "one"))
	require.ErrorIs(t, p.Resume(t.Context()), sandbox.ErrLost)
}

func TestASandboxThatStaysPausedIsNotLost(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	p := pauserOf(t, s)
	require.NoError(t, p.Pause(t.Context()))
	server.Fault("POST", "/unpause", podmantest.Fails(500, "the freezer is busy"))
	err = p.Resume(t.Context())
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.NotErrorIs(t, err, sandbox.ErrLost)
	require.NoError(t, p.Resume(t.Context()))
	require.Equal(t, "running", server.Containers()[0].State)
}

// paused marks the server's only container as paused.
func paused(server *podmantest.Server) {
	c := server.Containers()[0]
	c.State = "paused"
	server.Add(c)
}

// TestAPauseThatIsBegunDoesNotEndWithItsCaller: half a pause would leave an agent that can't answer.
func TestAPauseThatIsBegunDoesNotEndWithItsCaller(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	p := pauserOf(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	server.Fault("POST", "/pause", func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		paused(server)
		w.WriteHeader(http.StatusNoContent)
	})
	require.NoError(t, p.Pause(ctx))
	require.Equal(t, "paused", server.Containers()[0].State)
	require.NoError(t, p.Resume(ctx))
	require.Equal(t, "running", server.Containers()[0].State)
	require.ErrorIs(t, p.Pause(ctx), context.Canceled)
	require.Equal(t, 1, server.Count("POST", "/pause"))
}

// TestAPauseThatFailsIsTakenBack, even if Podman paused the container all the same.
func TestAPauseThatFailsIsTakenBack(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	_, err = s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}}) // now there is a connection
	require.NoError(t, err)
	server.Fault("POST", "/pause", func(w http.ResponseWriter, r *http.Request) {
		paused(server)
		server.Fault("GET", "/json", podmantest.Fails(500, "nobody can look"))
		podmantest.Fails(500, "it took too long")(w, r)
	})
	require.Error(t, pauserOf(t, s).Pause(t.Context()))
	require.Equal(t, "running", server.Containers()[0].State)
	require.Nil(t, s.(*Sandbox).clocks)
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusExited, res.Status)
}

func TestAHostThatCannotPauseSaysSo(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	refuse := func() error {
		fails := podmantest.Fails(500, "can not pause containers on rootless containers with cgroup V1")
		server.Fault("POST", "/pause", slices.Repeat([]http.HandlerFunc{fails}, freezes.Count)...)
		err := pauserOf(t, s).Pause(t.Context())
		require.ErrorIs(t, err, sandbox.ErrUnsupported)
		return err
	}
	require.NotContains(t, refuse().Error(), "use cgroup v2", "it has that")
	host := &b.eng.Load().info.Host
	host.Security.Rootless, host.CgroupsVersion = true, "v1"
	server.Fault("POST", "/pause", podmantest.Fails(500, "no"))
	require.ErrorContains(t, pauserOf(t, s).Pause(t.Context()), "use cgroup v2")
}

// TestACallSaysThatItWaitsForPodman, once the service has not answered for a while.
func TestACallSaysThatItWaitsForPodman(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	said, heard := make(chan string, 10), make(chan struct{})
	server.Fault("GET", "/_ping", func(w http.ResponseWriter, _ *http.Request) {
		<-heard
		w.WriteHeader(http.StatusOK)
	})
	server.Fault("POST", "/pause", func(w http.ResponseWriter, _ *http.Request) {
		defer close(heard)
		assert.Equal(t, "waiting for Podman, whose service does not answer", <-said)
		w.WriteHeader(http.StatusNoContent)
	})
	_ = pauserOf(t, s).Pause(tool.WithProgress(t.Context(), func(text string) { said <- text }))
	require.Empty(t, said)
}

func TestARuntimeThatGivesUpIsAskedAgain(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	p := pauserOf(t, s)
	server.Fault("POST", "/pause", podmantest.Fails(500, "unable to freeze"), podmantest.Fails(500, "unable to freeze"))
	require.NoError(t, p.Pause(t.Context()))
	require.Equal(t, "paused", server.Containers()[0].State)
	require.NoError(t, p.Resume(t.Context()))
}

// TestAPauseThatCannotBeTakenBackIsWhole: the next resume restarts its time limits too.
func TestAPauseThatCannotBeTakenBackIsWhole(t *testing.T) {
	b, server := newFake(t)
	s, err := b.Create(t.Context(), fakeSpec(t))
	require.NoError(t, err)
	defer s.Close(t.Context())
	server.Fault("POST", "/pause", func(w http.ResponseWriter, r *http.Request) {
		paused(server)
		server.Fault("GET", "/json", podmantest.Fails(500, "nobody can look"))
		server.Fault("POST", "/unpause", podmantest.Fails(500, "the freezer is busy"))
		podmantest.Fails(500, "it took too long")(w, r)
	})
	p := pauserOf(t, s)
	require.Error(t, p.Pause(t.Context()))
	require.NotNil(t, s.(*Sandbox).clocks)
	require.NoError(t, p.Resume(t.Context()))
	require.Nil(t, s.(*Sandbox).clocks)
	require.Equal(t, "running", server.Containers()[0].State)
}
