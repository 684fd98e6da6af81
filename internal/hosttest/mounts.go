package hosttest

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// UnmountBelow unmounts what is mounted below a directory: the disks of sessions
// that a script has not removed. What isn't there any more is no error.
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
