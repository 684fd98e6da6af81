package kernel

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// Children returns the children of all threads of a process.
func Children(pid int) (found []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/task/"
	tasks, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, task := range tasks {
		text, err := os.ReadFile(dir + task.Name() + "/children")
		if err != nil {
			return childrenByParent(pid)
		}
		for word := range strings.FieldsSeq(string(text)) {
			if child, ok := parsePID(word); ok {
				found = append(found, child)
			}
		}
	}
	return found
}

// childrenByParent searches all processes: not every kernel has lists of children.
func childrenByParent(pid int) (found []int) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range all {
		child, ok := parsePID(entry.Name())
		if !ok {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name before it may contain anything
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			found = append(found, child)
		}
	}
	return found
}

// parsePID parses the number of a process. gVisor lists an exiting process as 0, and a signal to 0 would go to the
// sender's own group.
func parsePID(text string) (pid int, ok bool) {
	pid, err := strconv.Atoi(text)
	return pid, err == nil && pid > 0
}

func descendants(roots []int) map[int]bool {
	seen := map[int]bool{}
	for todo := roots; len(todo) > 0; todo = todo[1:] {
		if pid := todo[0]; !seen[pid] {
			seen[pid] = true
			todo = append(slices.Clip(todo), Children(pid)...)
		}
	}
	return seen
}

// KillTrees kills children of this process; their children become its own, for the next round. Only this process reaps
// them, so no number is reused. Trees that fork faster than they die are stopped as a whole first.
func KillTrees(roots []int, rounds int) {
	if rounds > 3 {
		for pid := range descendants(roots) {
			_ = unix.Kill(pid, unix.SIGSTOP)
		}
	}
	for _, pid := range roots {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// UID returns the real user of a process, -1 if it is gone.
func UID(pid int) int {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(text), "\nUid:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return -1
	}
	uid, err := strconv.Atoi(fields[0])
	if err != nil {
		return -1
	}
	return uid
}

// Reap reaps one dead child without waiting. pid is 0 if none is dead, and err is ECHILD if there are no children.
func Reap() (pid int, status syscall.WaitStatus, usage syscall.Rusage, err error) {
	pid, err = retry.Interrupted(func() (int, error) { return syscall.Wait4(-1, &status, syscall.WNOHANG, &usage) })
	return pid, status, usage, err
}
