package hosttest

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tmpfs mounts a small file system on dir, with tmpfs's options, until the test ends. If that isn't
// permitted, the test skips: the run as root covers it.
func Tmpfs(t testing.TB, dir, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if os.Getuid() != 0 && errors.Is(err, syscall.EPERM) {
		t.Skip("only root mounts a file system; root's run of this test does")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}
