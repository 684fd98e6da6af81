package hosttest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// HasLoop reports whether a loop device uses a file whose path contains part.
func HasLoop(part string) bool { return len(loopsOf(part)) > 0 }

// AwaitNoLoop waits until no loop device uses a file whose path contains part, or until only other
// mount namespaces keep one. A process that starts a container or unshares its mounts while
// something is mounted gets a copy of the mount, until that namespace ends. Nobody else can undo
// it, and a build of an image keeps one for minutes.
func AwaitNoLoop(t testing.TB, part string) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, device := range loopsOf(part) {
			if !mountedElsewhere(device) {
				return false
			}
		}
		return true
	}, 30*time.Second, 10*time.Millisecond, "a loop device is left")
}

func loopsOf(part string) (devices []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if raw, err := os.ReadFile(file); err == nil && strings.Contains(string(raw), part) {
			devices = append(devices, "/dev/"+filepath.Base(filepath.Dir(filepath.Dir(file))))
		}
	}
	return devices
}

// mountedElsewhere reports whether a process in another mount namespace has the device mounted, and
// this one doesn't.
func mountedElsewhere(device string) bool {
	if hasMount("self", device) {
		return false
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if hasMount(filepath.Base(process), device) {
			return true
		}
	}
	return false
}

func hasMount(process, device string) bool {
	raw, err := os.ReadFile("/proc/" + process + "/mountinfo")
	return err == nil && strings.Contains(string(raw), " "+device+" ")
}
