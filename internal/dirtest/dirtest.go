// Package dirtest gives directories to tests.
package dirtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// InMemory is a directory like that of t.TempDir for a test of very many
// entries, which cost a disk's file system seconds: it lies in memory where the
// host has a place for that.
func InMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wisbox-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
