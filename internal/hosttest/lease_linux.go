package hosttest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const (
	leasePath = "WISBOX_TEST_LEASE_PATH"
	leaseKind = "WISBOX_TEST_LEASE_KIND"
)

// init turns a test binary into the process that [Lease] starts.
func init() {
	if path := os.Getenv(leasePath); path != "" {
		fmt.Println(holdLease(path))
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

func holdLease(path string) error {
	kind, err := strconv.Atoi(os.Getenv(leaseKind))
	if err != nil {
		return err
	}
	flags := os.O_RDWR
	if kind == unix.F_RDLCK {
		flags = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return err
	}
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, kind) // f stays open, so nothing releases the lease
	return err
}

// Lease makes another process hold a lease (unix.F_RDLCK or unix.F_WRLCK) on a file and never give
// it up, until the test ends or release is called.
func Lease(t testing.TB, path string, kind int) (release func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), leasePath+"="+path, leaseKind+"="+strconv.Itoa(kind))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	released := false
	release = func() {
		if !released {
			released = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(release)
	var said string
	_, err = fmt.Fscanln(out, &said)
	require.NoError(t, err)
	require.Equal(t, "<nil>", said, "take a lease of %s", path)
	return release
}
