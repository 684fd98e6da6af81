package plumbing

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

// other is a user who has nothing on this machine.
const other = 61_234

// repoOf returns a repository of the other user.
func repoOf(t *testing.T) *Repo {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root acts for other users; root's run of this test does")
	}
	dir, err := os.MkdirTemp("/tmp", "wisbox-objects-") // below which everybody may come
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	r := &Repo{common: filepath.Join(dir, "git"), runAs: &syscall.Credential{Uid: other, Gid: other}}
	for _, made := range []string{dir, r.common, filepath.Join(r.common, "objects"), filepath.Join(dir, "roots")} {
		_ = os.Mkdir(made, 0o755)
		require.NoError(t, os.Chmod(made, 0o755))
	}
	for _, own := range []string{r.common, filepath.Join(r.common, "objects")} {
		require.NoError(t, os.Chown(own, other, other))
	}
	return r
}

func TestObjectsOfAnotherUserAreMovedByThatUser(t *testing.T) {
	r := repoOf(t)
	o, err := r.newObjects()
	require.NoError(t, err)
	for _, name := range []string{"ab", "ab/cd", "pack", "pack/x.idx", "pack/x.pack"} {
		at := filepath.Join(o.Path, name)
		if filepath.Ext(name) == "" && filepath.Base(name) == name {
			require.NoError(t, os.Mkdir(at, 0o755))
		} else {
			require.NoError(t, os.WriteFile(at, nil, 0o644))
		}
		require.NoError(t, os.Chown(at, other, other))
	}
	require.NoError(t, o.moveIn())
	require.NoError(t, o.Close())
	for _, name := range []string{".", "ab", "ab/cd", "pack", "pack/x.idx", "pack/x.pack"} {
		info, err := os.Lstat(filepath.Join(r.common, "objects", name))
		require.NoError(t, err, name)
		assert.EqualValues(t, other, info.Sys().(*syscall.Stat_t).Uid, name)
	}
	left, err := os.ReadDir(filepath.Join(r.common, "objects"))
	require.NoError(t, err)
	assert.Len(t, left, 2)
}

// TestALinkInTheRepositoryLeadsRootNowhere: its owner can make one at any moment.
func TestALinkInTheRepositoryLeadsRootNowhere(t *testing.T) {
	r := repoOf(t)
	objects, roots := filepath.Join(r.common, "objects"), filepath.Join(r.common, "../roots")
	require.NoError(t, os.Remove(objects))
	require.NoError(t, os.Symlink(roots, objects))
	_, err := r.newObjects()
	require.Equal(t, tool.Permission, tool.KindOf(err))
	left, err := os.ReadDir(roots)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestFilesOfRootInTheRepositoryStayRoots although the other user may rename them.
func TestFilesOfRootInTheRepositoryStayRoots(t *testing.T) {
	r := repoOf(t)
	o, err := r.newObjects()
	require.NoError(t, err)
	defer o.Close()
	secret := filepath.Join(r.common, "objects/ab")
	require.NoError(t, os.Mkdir(secret, 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(o.Path, "ab"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(o.Path, "ab/cd"), nil, 0o644))
	require.NoError(t, os.Chown(filepath.Join(o.Path, "ab"), other, other))
	require.Error(t, o.moveIn())
	info, err := os.Lstat(secret)
	require.NoError(t, err)
	assert.Zero(t, info.Sys().(*syscall.Stat_t).Uid)
}
