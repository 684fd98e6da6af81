package hosttest

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UnmountBelow unmounts everything below a directory: disks of sessions that a script hasn't
// removed. A mount that is already gone is not an error.
func UnmountBelow(dir string) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], dir+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH)
		}
	}
}
