package hold

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MarkName is the name of a file in a session's directory that exists while a holder lives. If a
// holder finds it at its start, the last one was killed.
const MarkName = "held"

// Mark creates the mark at path, and reports whether it existed.
func Mark(path string) (was bool) {
	was = Marked(path)
	_ = os.WriteFile(path, []byte(strconv.Itoa(os.Getpid())), 0o600)
	return was
}

// Marked reports whether the mark exists: a holder lives, or the last one was killed.
func Marked(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Unmark removes the mark.
func Unmark(path string) { _ = os.Remove(path) }

// Alone reports whether a session's holder is the only process that has the session in that
// directory open: then no client uses it, but its programs may run.
func Alone(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, MarkName))
	holder, err2 := strconv.Atoi(string(raw))
	if err != nil || err2 != nil {
		return false
	}
	who, err := lockers(filepath.Join(dir, "life.lock"))
	return err == nil && slices.Equal(slices.Compact(who), []int{holder})
}

// lockers returns the processes that have a flock on a file, as listed by the kernel.
func lockers(path string) (pids []int, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, err
	}
	locks, err := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(locks)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY READ 14514 fe:00:10404933 0 EOF
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], ":"+strconv.FormatUint(st.Ino, 10)) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, err
}
