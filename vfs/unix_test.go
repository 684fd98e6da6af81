package vfs_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func owner(t *testing.T, path string) (uid, gid uint32) {
	info, err := os.Lstat(path)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return st.Uid, st.Gid
}

// smallDisk is a directory on a file system of its own, made with the options of
// tmpfs. It needs root.
func smallDisk(t *testing.T, options string) string {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	return dir
}
