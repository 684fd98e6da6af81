package vfs_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func TestPathsAreThoseOfFilesAndNothingIsOpened(t *testing.T) {
	dir := t.TempDir()
	root, tmp := filepath.Join(dir, "workspace"), filepath.Join(dir, "tmp")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "a/b"), 0o755))
	require.NoError(t, os.Mkdir(tmp, 0o755))
	for _, name := range []string{"z", "a/x", "a/b/y", ".hidden"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0))
	}
	require.NoError(t, os.Symlink("a", filepath.Join(root, "dirlink")))
	require.NoError(t, os.Symlink("z", filepath.Join(root, "filelink")))
	require.NoError(t, os.Symlink("/etc", filepath.Join(root, "out")))
	top, err := os.OpenRoot(root)
	require.NoError(t, err)
	defer top.Close()
	staging, err := os.OpenRoot(tmp)
	require.NoError(t, err)
	defer staging.Close()
	f, err := vfs.New(&vfs.Options{Root: top, Tmp: staging})
	require.NoError(t, err)
	defer f.Close()
	ctx := context.Background()
	list := func(path string, max int) []string {
		got, err := f.Paths(ctx, path, max)
		require.NoError(t, err)
		return got
	}
	assert.Equal(t, []string{".hidden", "a/b/y", "a/x", "filelink", "out", "z"}, list("/", 6))
	assert.Equal(t, []string{"a/b/y", "a/x"}, list("a", 10))
	assert.Equal(t, []string{"dirlink/b/y", "dirlink/x"}, list("dirlink", 10))
	for path, kind := range map[string]tool.Kind{"/": tool.TooLarge, "nothing": tool.NotFound, "z": tool.NotDir, "out": tool.Escape, "../x": tool.Invalid} {
		_, err := f.Paths(ctx, path, 5)
		assert.Equal(t, kind, tool.KindOf(err), "%s: %v", path, err)
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "many"), 0o755))
	for i := range 3000 {
		require.NoError(t, os.WriteFile(filepath.Join(root, "many", fmt.Sprint(i)), nil, 0o600))
	}
	assert.Len(t, list("many", 3000), 3000)
	_, err = f.Paths(ctx, "many", 2999)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
}
