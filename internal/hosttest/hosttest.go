// Package hosttest gives tests what they need of the host: directories, and a
// user whom modes bind.
package hosttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
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

// Lacks ends a test for which something isn't there: in CI, where all must be, it
// fails; elsewhere it skips.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("CI must have this: "+format, args...)
	}
	t.Skipf(format, args...)
}

// Tmpfs mounts a small file system on dir, with tmpfs's options, until the test
// ends. Where that is denied the test skips: root's run does it.
func Tmpfs(t testing.TB, dir, options string) {
	t.Helper()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options)
	if os.Getuid() != 0 && errors.Is(err, syscall.EPERM) {
		t.Skip("only root mounts a file system; root's run of this test does")
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// AsNobody runs a test that is root's once more as a user without rights, and
// says whether it did: the caller then has nothing left to do.
func AsNobody(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		return false
	}
	cmd := CommandOfNobody(t, "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
	return true
}

const nobody = 65534

// CommandOfNobody is this test binary as a command of a user without rights, in
// a directory of that user's own. Only root can start it.
func CommandOfNobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	place, err := os.MkdirTemp("/var/tmp", "wisbox-test-") // others can't reach t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(place)) })
	require.NoError(t, os.Chown(place, nobody, nobody))
	raw, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	binary := filepath.Join(place, "test")
	require.NoError(t, os.WriteFile(binary, raw, 0o755))
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = place, append(os.Environ(), "TMPDIR="+place, "HOME="+place)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return cmd
}
