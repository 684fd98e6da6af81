package hosttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Binary returns the path of the wisbox for tests: WISBOX_BIN, or the one that `make build` made in
// the test's module.
func Binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("WISBOX_BIN")
	if bin == "" {
		bin = filepath.Join(Module(t), "bin", "wisbox")
	}
	bin, err := filepath.Abs(bin)
	require.NoError(t, err)
	require.FileExists(t, bin, "build it first: make build")
	return bin
}

// Module returns the directory of the go.mod above the test's.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		require.NotEqual(t, dir, above, "no go.mod above the test")
		dir = above
	}
}
