// Package kernel wraps the kernel's services for the agent and its monitors: rights, pipes, messages between their
// processes, process trees and the counters of control groups.
//
// Credentials belong to a thread. The agent and its monitors fork only from their main thread, to which their main
// goroutine is locked: comments about a process here apply to that thread and to its children.
package kernel

import (
	"bytes"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Programs run as this user and group.
const (
	User  = 1000
	Group = 1000
)

// Root reports whether this process began as uid 0. Otherwise programs run as its own user.
var Root = os.Geteuid() == 0

const (
	capKill, capSetGID, capSetUID, capSetPCap = 5, 6, 7, 8

	capsOfMonitor = 1<<capKill | 1<<capSetGID | 1<<capSetUID
	capsOfAgent   = capsOfMonitor | 1<<capSetPCap // its monitors need it to drop their bounding set
)

// AgentRights drops the rights that the agent doesn't need. It returns sentences about rights that it couldn't drop or
// lacks.
func AgentRights() (gaps []string) {
	if !Root {
		gaps = append(gaps, "the agent is not uid 0: programs run as its own user")
	} else {
		setGroups()
		if !keepCaps(capsOfAgent) {
			gaps = append(gaps, "the agent lacks the capabilities that it needs")
		}
	}
	ambientAndPrivileges()
	if unix.Kill(unix.Getpid(), 0) != nil { // a security module asks its rules even for one's own process
		gaps = append(gaps, "a security module of this machine lets no program signal another, and time limits can't end one alone: look for DENIED operation=\"signal\" in the kernel's log")
	}
	_ = prctl(unix.PR_SET_CHILD_SUBREAPER, 1)
	core := unix.Rlimit{}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &core)
	unix.Umask(0o022)
	return gaps
}

// MonitorRights leaves a monitor and its children only the rights to become the programs' user and to kill. The
// programs' bounding set is empty.
func MonitorRights() {
	if Root {
		for c := uintptr(0); c < 64 && prctl(unix.PR_CAPBSET_DROP, c) == nil; c++ {
		}
		keepCaps(capsOfMonitor)
		setGroups()
		_ = rawErr(unix.RawSyscall(unix.SYS_SETRESGID, Group, Group, Group))
	}
	ambientAndPrivileges()
	_ = prctl(unix.PR_SET_CHILD_SUBREAPER, 1)
}

func ambientAndPrivileges() {
	_ = prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL)
	_ = prctl(unix.PR_SET_NO_NEW_PRIVS, 1)
}

func setGroups() { _ = rawErr(unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0)) }

// keepCaps sets this thread's capabilities, and reports whether it now has exactly those.
func keepCaps(keep uint32) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return false
	}
	has := data[0].Permitted & keep
	data = [2]unix.CapUserData{{Permitted: has, Effective: has}}
	return unix.Capset(&header, &data[0]) == nil && has == keep
}

func prctl(option int, arg uintptr) error {
	return rawErr(unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0))
}

func rawErr(_, _ uintptr, errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}

// Name sets the name of this process in process lists, at most 15 bytes.
func Name(name string) {
	text := append([]byte(name), 0)
	_ = prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(&text[0])))
}

// AsUser calls do with the effective rights of programs. The real and saved uid stay 0, so programs can neither signal
// nor trace this thread meanwhile.
func AsUser(do func()) {
	if !Root {
		do()
		return
	}
	setEUID(User)
	defer setEUID(0)
	do()
}

func setEUID(uid uintptr) {
	if err := rawErr(unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uid, ^uintptr(0))); err != nil {
		panic("setresuid: " + err.Error())
	}
}

// LowerRank gives this thread's children the lowest processor priority and makes them the first choice of the
// out-of-memory killer. It can't be undone, so it applies to this process too. Programs may change the latter. If the
// agent is killed instead of a program, it is started again.
func LowerRank() {
	_ = rawErr(unix.RawSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, 10))
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}

// AsGroup calls do with the programs' group as the effective one.
func AsGroup(do func()) {
	if !Root {
		do()
		return
	}
	keep := ^uintptr(0)
	if rawErr(unix.RawSyscall(unix.SYS_SETRESGID, keep, Group, keep)) == nil {
		defer func() { _ = rawErr(unix.RawSyscall(unix.SYS_SETRESGID, keep, 0, keep)) }()
	}
	do()
}

// Status returns fields of this thread's /proc/self/status by name.
func Status() map[string]string {
	fields := map[string]string{}
	text, _ := os.ReadFile("/proc/thread-self/status")
	for line := range bytes.Lines(text) {
		if name, value, ok := strings.Cut(string(line), ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// SpareThreads creates n threads that the runtime keeps for later: if it needed a new thread when the sandbox has no
// process left, this process would crash.
func SpareThreads(n int) {
	ready, release := make(chan struct{}), make([]int, 2)
	if unix.Pipe2(release, unix.O_CLOEXEC) != nil {
		return
	}
	done := make(chan struct{})
	for range n {
		go func() {
			ready <- struct{}{}
			var b [1]byte
			_, _ = unix.Read(release[0], b[:]) // blocks its thread, so the next one needs another
			done <- struct{}{}
		}()
	}
	for range n {
		<-ready
	}
	for range n {
		runtime.Gosched()
	}
	_, _ = unix.Write(release[1], make([]byte, n))
	for range n {
		<-done
	}
	_ = unix.Close(release[0])
	_ = unix.Close(release[1])
	runtime.GC() // so its workers have their threads already
}

// ioctl passes a pointer's target to the kernel.
func ioctl(fd int, request uintptr, arg unsafe.Pointer) error {
	return rawErr(unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)))
}
