package hold

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// through returns a short path of an open directory.
func through(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

// EndUnreachable kills the holders that no client can reach, and returns the names of their sessions. Their socket was
// removed or replaced, their session's directory is gone, or they are of a version of wisbox whose holders listen elsewhere. A killed
// holder's processes go on with the next one. name is the one session to look for, or "" for all; with dryRun none is
// killed.
func (r Root) EndUnreachable(ctx context.Context, name string, dryRun bool) (sessions []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		session, yes := r.unreachable(pid)
		if yes && (name == "" || name == session) && (dryRun || r.endUnreachable(ctx, pid, session)) {
			sessions = append(sessions, session)
		}
	}
	return sessions
}

// endUnreachable kills a holder if no client can reach it, and waits for its end.
func (r Root) endUnreachable(ctx context.Context, pid int, name string) (killed bool) {
	process, err := unix.PidfdOpen(pid, 0) // must come first: the signal reaches the process that is looked at, or none
	if err != nil {
		return false
	}
	defer unix.Close(process)
	session, yes := r.unreachable(pid)
	if !yes || session != name || unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0) != nil {
		return false
	}
	for {
		if ended, _ := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0); ended > 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-time.After(lockEvery):
		}
	}
}

// unreachable reports whether a process is a holder of this state root that no client can reach, and returns its session.
// A holder that starts doesn't have its session open yet.
func (r Root) unreachable(pid int) (session string, yes bool) {
	proc := fmt.Sprintf("/proc/%d", pid)
	if pid == os.Getpid() || !isOurs(proc) {
		return "", false
	}
	argv := strings.Split(strings.TrimRight(beginning(proc+"/cmdline", maxArgs), "\x00"), "\x00")
	if len(argv) < 3 || argv[1] != "__hold" || !r.isOf(proc) {
		return "", false
	}
	session = argv[len(argv)-1]
	dir, err := r.dir(session)
	if err != nil {
		return "", false
	}
	lock, lockErr := os.Stat(filepath.Join(dir, lockName))
	current, open := false, false
	files, _ := filepath.Glob(proc + "/fd/*")
	for _, file := range files {
		info, err := os.Stat(file)
		current = current || err == nil && lockErr == nil && os.SameFile(info, lock)
		target, _ := os.Readlink(file)
		open = open || filepath.Base(strings.TrimSuffix(target, " (deleted)")) == lifeName
	}
	if current {
		holder, lost := lostSocket(dir)
		return session, lost && holder == pid
	}
	return session, open
}

// A program can make its command line and its environment as long as its address space.
const (
	maxArgs = 64 << 10
	maxEnv  = 8 << 20 // more than the kernel passes to a program
)

// beginning returns at most max bytes of a file of /proc.
func beginning(path string, max int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, max))
	return string(text)
}

// isOurs reports whether a process is this user's, and no program of a sandbox: without root, these have the same user,
// but another user namespace.
func isOurs(proc string) bool {
	info, err := os.Stat(proc)
	if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
		return false
	}
	its, err := os.Stat(proc + "/ns/user")
	own, ownErr := os.Stat("/proc/self/ns/user")
	return err == nil && ownErr == nil && os.SameFile(its, own)
}

// isOf reports whether a process was started for this state root.
func (r Root) isOf(proc string) bool {
	own, err := os.Stat(r.CacheDir)
	if err != nil {
		return false
	}
	for variable := range strings.SplitSeq(beginning(proc+"/environ", maxEnv), "\x00") {
		if root, ok := strings.CutPrefix(variable, "WISBOX_CACHE="); ok {
			its, err := os.Stat(proc + "/root" + root)
			return err == nil && os.SameFile(its, own)
		}
	}
	return false
}
