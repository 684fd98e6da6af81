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
