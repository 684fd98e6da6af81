package sandboxtest

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// lifeChecks are about creating, finding, detaching and removing sandboxes.
var lifeChecks = []check{
	{"a sandbox says what it is", func(t *testing.T, f *fixture) {
		info, err := f.box.Info(context.Background())
		require.NoError(t, err)
		assert.Equal(t, f.spec.ID, info.ID)
		assert.Equal(t, "running", info.State)
		assert.NotEmpty(t, info.Object)
		assert.False(t, info.Created.IsZero())
		names := map[string]bool{}
		for _, l := range info.Limits {
			names[l.Name] = true
			assert.NotEmpty(t, l.Asked, l.Name)
			assert.NotEmpty(t, l.By, l.Name)
		}
		for _, name := range []string{"cpus", "memory", "pids", "tmp", "nofile", "fsize", "disk", "inodes"} {
			assert.True(t, names[name], "the limit %s is listed", name)
		}
	}},
	{"specs that break a rule are refused and leave nothing", func(t *testing.T, f *fixture) {
		for name, breakIt := range map[string]func(*sandbox.Spec){
			"no id":              func(s *sandbox.Spec) { s.ID = "" },
			"upper case id":      func(s *sandbox.Spec) { s.ID = "Abc" },
			"id with a path":     func(s *sandbox.Spec) { s.ID = "../x" },
			"id with a comma":    func(s *sandbox.Spec) { s.ID = "a,b=c" },
			"no workspace":       func(s *sandbox.Spec) { s.Workspace = "" },
			"relative workspace": func(s *sandbox.Spec) { s.Workspace = "work" },
			"missing workspace":  func(s *sandbox.Spec) { s.Workspace += "/not-there" },
			"negative limit":     func(s *sandbox.Spec) { s.Limits.Memory = -1 },
			"variable with NUL":  func(s *sandbox.Spec) { s.Env = map[string]string{"A": "\x00"} },
			"variable with =":    func(s *sandbox.Spec) { s.Env = map[string]string{"": "v"} },
		} {
			backend, spec := f.newBackend(t)
			breakIt(&spec)
			_, err := backend.Create(context.Background(), spec)
			assert.ErrorIs(t, err, sandbox.ErrInvalid, name)
			assert.NotContains(t, ids(t, backend), spec.ID, name)
			assert.NoError(t, backend.Close())
		}
	}},
	{"an image that is not there is unavailable and leaves nothing", func(t *testing.T, f *fixture) {
		backend, spec := f.newBackend(t)
		defer backend.Close()
		spec.Image = MissingImage
		_, err := backend.Create(context.Background(), spec)
		assert.ErrorIs(t, err, sandbox.ErrUnavailable)
		assert.NotContains(t, ids(t, backend), spec.ID)
	}},
	{"a cancelled create leaves nothing", func(t *testing.T, f *fixture) {
		backend, spec := f.newBackend(t)
		defer backend.Close()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := backend.Create(ctx, spec)
		assert.Error(t, err)
		assert.NotContains(t, ids(t, backend), spec.ID)
	}},
	{"an id is given once", func(t *testing.T, f *fixture) {
		_, err := f.backend.Create(context.Background(), f.spec)
		assert.ErrorIs(t, err, sandbox.ErrExists)
		assert.Equal(t, "on", f.must(t, "echo on"), "the first one goes on")
	}},
	{"what was never made is not found, and removing it is not an error", func(t *testing.T, f *fixture) {
		backend, spec := f.newBackend(t)
		defer backend.Close()
		_, err := backend.Open(context.Background(), spec)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
		assert.NoError(t, backend.Remove(context.Background(), spec.ID))
	}},
	{"a sandbox is listed until it is closed, and closing twice is no matter", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{})
		assert.Contains(t, ids(t, own.backend), own.spec.ID)
		require.NoError(t, own.box.Close(context.Background()))
		require.NoError(t, own.box.Close(context.Background()))
		assert.NotContains(t, ids(t, own.backend), own.spec.ID)
		assert.DirExists(t, own.spec.Workspace, "the workspace is the caller's")
		_, err := own.backend.Open(context.Background(), own.spec)
		assert.ErrorIs(t, err, sandbox.ErrNotFound)
		_, err = own.box.Run(context.Background(), f.script("true"))
		assert.ErrorIs(t, err, sandbox.ErrLost)
	}},
	{"closing ends what runs", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{})
		out := newWatcher()
		cmd := f.survivor("double", "hang")
		cmd.Stdout = out
		p := own.start(t, cmd)
		out.await(t, "ready")
		require.NoError(t, own.box.Close(context.Background()))
		assert.NotEqual(t, sandbox.StatusExited, wait(t, p).Status)
		own.released(t, "double")
	}},
	{"a detached sandbox stays without its programs and can be opened", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{})
		out := newWatcher()
		cmd := f.survivor("double", "hang")
		cmd.Stdout = out
		p := own.start(t, cmd)
		out.await(t, "ready")
		require.NoError(t, own.box.Detach())
		require.NoError(t, own.box.Detach())
		wait(t, p)
		_, err := own.box.Run(context.Background(), f.script("true"))
		assert.ErrorIs(t, err, sandbox.ErrLost)
		own.box, err = own.backend.Open(context.Background(), own.spec)
		require.NoError(t, err)
		defer own.box.Close(context.Background())
		assert.Equal(t, "again", own.must(t, "echo again"))
		own.released(t, "double")
	}},
	{"a program that may outlive its handle does, and the next handle goes on with it", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{})
		if _, ok := sandbox.As[sandbox.Detacher](own.box); !ok {
			return
		}
		cmd := f.script("echo one; read x; echo $x; exit 7")
		out := newWatcher()
		in, feed := io.Pipe()
		defer feed.Close()
		cmd.Stdin, cmd.Stdout, cmd.Lifetime, cmd.Label = in, out, sandbox.LifetimeDetached, "mine"
		first := own.start(t, cmd)
		out.await(t, "one")
		require.NoError(t, own.box.Detach())
		wait(t, first)
		var err error
		own.box, err = own.backend.Open(context.Background(), own.spec)
		require.NoError(t, err)
		defer own.box.Close(context.Background())
		d, _ := sandbox.As[sandbox.Detacher](own.box)
		var left sandbox.DetachedProcess
		require.Eventually(t, func() bool {
			list, err := d.Detached(context.Background())
			require.NoError(t, err)
			require.Len(t, list, 1)
			left = list[0]
			return !left.Held
		}, prompt, time.Millisecond)
		assert.Equal(t, "mine", left.Label)
		assert.True(t, left.Input)
		rest := newWatcher()
		p, err := d.Attach(context.Background(), left.ID, sandbox.Cmd{Stdin: strings.NewReader("two\n"), Stdout: rest})
		require.NoError(t, err)
		assert.Equal(t, 7, wait(t, p).ExitCode)
		rest.await(t, "two")
	}},
	{"a sandbox that is removed under a program is lost", func(t *testing.T, f *fixture) {
		own := f.fresh(t, sandbox.Limits{})
		out := newWatcher()
		cmd := f.script("echo ready; sleep 600")
		cmd.Stdout = out
		p := own.start(t, cmd)
		out.await(t, "ready")
		require.NoError(t, own.backend.Remove(context.Background(), own.spec.ID))
		require.NoError(t, own.backend.Remove(context.Background(), own.spec.ID))
		res := wait(t, p)
		assert.Equal(t, sandbox.StatusSandboxLost, res.Status)
		assert.Equal(t, -1, res.ExitCode)
		_, err := own.box.Run(context.Background(), f.script("true"))
		assert.ErrorIs(t, err, sandbox.ErrLost)
		box, err := own.backend.Create(context.Background(), own.spec)
		require.NoError(t, err, "the same spec can be made again")
		require.NoError(t, box.Close(context.Background()))
	}},
}

func ids(t *testing.T, b sandbox.Backend) []string {
	t.Helper()
	infos, err := b.List(context.Background())
	require.NoError(t, err)
	out := []string{}
	for _, info := range infos {
		out = append(out, info.ID)
	}
	return out
}
