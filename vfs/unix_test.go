package vfs_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func owner(t *testing.T, path string) (uid, gid uint32) {
	info, err := os.Lstat(path)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// smallDisk returns a directory on its own file system, with options of tmpfs. It needs root.
func smallDisk(t *testing.T, options string) string {
	dir := t.TempDir()
	hosttest.Tmpfs(t, dir, options)
	return dir
}
