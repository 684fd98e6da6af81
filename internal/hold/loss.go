package hold

import (
	"bufio"
	"io"
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

// Locks are the locks on files as the kernel lists them at the first question. The zero value is ready.
type Locks struct{ of map[uint64][]int } // the processes with a flock, by inode

// Alone reports whether a session's holder is the only process that has the session in that
// directory open: then no client uses it, but its programs may run. If programs have so many locks that the list is cut,
// it may report that somebody else has it too.
func (l *Locks) Alone(dir string) bool {
	raw, err := os.ReadFile(filepath.Join(dir, MarkName))
	holder, err2 := strconv.Atoi(string(raw))
	var st unix.Stat_t
	if err != nil || err2 != nil || unix.Stat(filepath.Join(dir, lifeName), &st) != nil {
		return false
	}
	if l.of == nil {
		l.of = lockers()
	}
	who := slices.Sorted(slices.Values(l.of[st.Ino]))
	return slices.Equal(slices.Compact(who), []int{holder})
}

// maxLocks are the bytes of the kernel's list that are read: programs can have millions of locks, and each page of the list takes the
// kernel longer than the one before.
const maxLocks = 1 << 20

// lockers returns the processes that have a flock on a file, by the file's inode.
func lockers() map[uint64][]int {
	all := map[uint64][]int{}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return all
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxLocks)); lines.Scan(); {
		f := strings.Fields(lines.Text()) // 1: FLOCK ADVISORY READ 14514 fe:00:10404933 0 EOF
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		inode, err := strconv.ParseUint(f[5][strings.LastIndexByte(f[5], ':')+1:], 10, 64)
		pid, err2 := strconv.Atoi(f[4])
		if err == nil && err2 == nil {
			all[inode] = append(all[inode], pid)
		}
	}
	return all
}
