package overlay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// seenBefore returns a state root whose workspace is open before a session exists.
func seenBefore(t *testing.T) (*Store, os.FileInfo) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "workspace"), 0o777))
	require.NoError(t, os.Chmod(root, 0o700))
	s, err := OpenStoreWith(root, &StoreOptions{Single: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	info, err := os.Stat(filepath.Join(root, "workspace"))
	require.NoError(t, err)
	return s, info
}

func isStill(t *testing.T, s *Store, info os.FileInfo) {
	t.Helper()
	now, err := os.Lstat(filepath.Join(s.path, "workspace"))
	require.NoError(t, err)
	assert.True(t, os.SameFile(info, now), "programs see another directory")
}

func TestASingleSessionTakesTheWorkspaceThatIsThere(t *testing.T) {
	s, info := seenBefore(t)
	d := create(t, s, &CreateOptions{ID: "one", Kept: true, Disk: 1 << 20})
	isStill(t, s, info)
	assert.Equal(t, filepath.Join(s.path, "workspace"), d.WorkspacePath())
	assert.Equal(t, os.FileMode(0o755), mode(t, d.WorkspacePath()))
	assert.Equal(t, DiskWatch, d.State().Disk.Way)
	put(t, d.Workspace(), "a", "x")
	put(t, d.Tmp(), "b", "x")
	require.NoError(t, d.Tmp().Rename("b", "c"))
	require.NoError(t, os.Rename(filepath.Join(s.path, "tmp/c"), filepath.Join(s.path, "workspace/c")), "one file system")
	require.NoError(t, d.Close())

	d, err := s.Open(t.Context(), "one")
	require.NoError(t, err)
	defer d.Close()
	assert.FileExists(t, filepath.Join(s.path, "workspace/c"))
	require.NoError(t, d.Check(t.Context()))
}

func TestAResetOfASingleSessionEmptiesInPlace(t *testing.T) {
	s, info := seenBefore(t)
	d := create(t, s, &CreateOptions{ID: "one"})
	require.NoError(t, d.Workspace().MkdirAll("a/b", 0o700))
	put(t, d.Workspace(), "a/b/c", "x")
	require.NoError(t, os.Chmod(filepath.Join(d.WorkspacePath(), "a"), 0))
	require.NoError(t, d.Reset(t.Context()))
	isStill(t, s, info)
	assert.Empty(t, entries(t, d.WorkspacePath()))
	put(t, d.Workspace(), "again", "x")
	require.NoError(t, d.Check(t.Context()))
}

func TestThereIsNoSecondSessionBesideASingleOne(t *testing.T) {
	s, info := seenBefore(t)
	d := create(t, s, &CreateOptions{ID: "one"})
	put(t, d.Workspace(), "a", "x")
	_, err := s.Create(t.Context(), &CreateOptions{ID: "two"})
	assert.Equal(t, answer.Unsupported, answer.KindOf(err))
	_, err = s.Create(t.Context(), &CreateOptions{ID: "one"})
	assert.Equal(t, answer.Exists, answer.KindOf(err))
	assert.FileExists(t, filepath.Join(s.path, "workspace/a"), "the first one has its files")
	require.NoError(t, d.Close())
	require.NoError(t, s.Remove(t.Context(), "one"))
	isStill(t, s, info)
	assert.Empty(t, entries(t, filepath.Join(s.path, "workspace")))
	create(t, s, &CreateOptions{ID: "two"})
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

func entries(t *testing.T, path string) []os.DirEntry {
	t.Helper()
	all, err := os.ReadDir(path)
	require.NoError(t, err)
	return all
}
