//go:build !linux || portable

// With the tag portable, tests use the code of other systems on Linux.

package beneath

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// errSocket is the error of opening a socket.
var errSocket = map[bool]unix.Errno{true: unix.ENXIO, false: unix.EOPNOTSUPP}[runtime.GOOS == "linux"]

func hasOpenat2(int) bool { return false }

func openat2(int, string, int) (int, error) { return -1, unix.ENOSYS }

func readlink(int, string) (text string, link bool, err error) { return "", false, unix.ENOSYS }
