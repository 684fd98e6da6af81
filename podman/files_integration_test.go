//go:build integration

package podman

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// TestFilesOfAContainerAreWorkedOnInside, with the rights of its programs.
func TestFilesOfAContainerAreWorkedOnInside(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("files")
	s := h.create(spec)
	f, ok := sandbox.As[sandbox.FileSystem](s)
	require.True(t, ok)
	watch, err := f.Watch(t.Context(), "/workspace", sandbox.WatchOptions{Recursive: true})
	require.NoError(t, err)
	defer watch.Close()
	for _, path := range []string{"/workspace/a/b", "/tmp/a/b"} {
		require.NoError(t, f.Write(t.Context(), path, strings.NewReader("hello"), sandbox.WriteOptions{Parents: true}))
		info, err := f.Stat(t.Context(), path, sandbox.StatOptions{})
		require.NoError(t, err)
		require.Equal(t, sandbox.UserID, info.UID)
		require.Equal(t, fs.FileMode(0o644), info.Mode)
		r, err := f.Open(t.Context(), path, sandbox.OpenOptions{})
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		require.Equal(t, "hello", string(content))
	}
	e, err := watch.Next()
	require.NoError(t, err)
	require.Equal(t, sandbox.FileEvent{Change: sandbox.FileCreated, Name: "a", Dir: true}, e)
	require.NoError(t, f.Move(t.Context(), "/tmp/a/b", "/workspace/c", sandbox.MoveOptions{}), "between file systems")
	content, err := os.ReadFile(filepath.Join(spec.Workspace, "c"))
	require.NoError(t, err)
	require.Equal(t, "hello", string(content))
	require.NoError(t, f.Remove(t.Context(), "/workspace/a", sandbox.RemoveOptions{Recursive: true}))
	require.NoDirExists(t, filepath.Join(spec.Workspace, "a"))
	for _, path := range []string{"/etc/x", "/x", "/.wisbox-agent"} {
		require.Error(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{}), path)
		require.Error(t, f.Write(t.Context(), path, strings.NewReader("x"), sandbox.WriteOptions{How: sandbox.WriteInPlace}), path)
	}
	_, err = f.Open(t.Context(), "/proc/1/environ", sandbox.OpenOptions{})
	require.ErrorIs(t, err, fs.ErrPermission)
	n := 0
	require.NoError(t, f.List(t.Context(), "/usr/bin", sandbox.ListOptions{}, func(sandbox.FileInfo) error { n++; return nil }))
	require.Positive(t, n)
	out, _ := sh(t, s, "kill -9 -1; echo ok")
	require.Contains(t, out, "ok")
	for err = nil; err == nil; {
		_, err = watch.Next()
	}
	require.ErrorIs(t, err, sandbox.ErrInterrupted, "programs can end what has their rights")
	require.Eventually(t, func() bool {
		_, err := f.Stat(t.Context(), "/workspace", sandbox.StatOptions{})
		return err == nil
	}, 30*time.Second, 10*time.Millisecond)
}
