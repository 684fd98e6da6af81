// Package hosttest helps tests with the machine that they run on: directories in memory, a user
// without rights, file leases, loop devices and network ports.
package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// InMemory returns a directory like t.TempDir's, in memory if the host has a place for that: for
// tests with very many entries, which take seconds on a disk.
func InMemory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wisbox-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// Slow marks a test that is too slow for `make test`, which skips it; `make test-slow`, which CI runs too, runs all tests
// that are marked so. It must be called in the body of a test.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv("WISBOX_QUICK") != "" {
		t.Skip("it is slow; make test-slow runs it")
	}
}

// OfMemory marks a test of how much memory something takes. The race detector's own memory hides that, and makes such tests
// take minutes: with it they run in `make nightly` only, for their goroutines.
func OfMemory(t testing.TB) {
	t.Helper()
	if Raced && os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it is about memory, and the race detector is on; make nightly runs it")
	}
}

// Lacks ends a test that needs something missing: in CI, which must have everything, it fails;
// elsewhere it skips.
func Lacks(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("CI must have this: "+format, args...)
	}
	t.Skipf(format, args...)
}

// AsNobody, if called as root, runs the test again as a user without rights, and reports whether it
// did; then the caller has nothing left to do.
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

// CommandOfNobody returns a command that runs this test binary as a user without rights, in a
// directory of that user. Only root can start it.
func CommandOfNobody(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	place, err := os.MkdirTemp("/var/tmp", "wisbox-test-") // others can't access t.TempDir
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

// Why returns the text of an error and of all its causes, which an agent never sees.
func Why(err error) string {
	var causes []error
	switch err := err.(type) { //nolint:errorlint // the causes follow
	case interface{ Unwrap() error }:
		causes = append(causes, err.Unwrap())
	case interface{ Unwrap() []error }:
		causes = err.Unwrap()
	}
	why := err.Error()
	for _, cause := range causes {
		if cause != nil {
			why += "\nbecause: " + Why(cause)
		}
	}
	return why
}

// NeedPodman ends a test if problem isn't "", because Podman can't run: with $WISBOX_REQUIRE_PODMAN
// it fails, otherwise it skips.
func NeedPodman(t testing.TB, problem string) {
	t.Helper()
	switch {
	case problem == "":
	case os.Getenv("WISBOX_REQUIRE_PODMAN") != "":
		t.Fatalf("Podman is required (WISBOX_REQUIRE_PODMAN) and can't run: %s", problem)
	default:
		t.Skipf("Podman can't run here: %s", problem)
	}
}
