// Package syscalltest records, for a test, the order of the fsync and rename calls of a child
// process, which decide what survives a crash of the machine.
package syscalltest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/retry"
)

const (
	ptraceGetSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO
	exitKill             = 0x100000
	syscallStop          = syscall.SIGTRAP | 0x80
	onEntry              = 1
)

// info is the beginning of struct ptrace_syscall_info, the same for every processor.
type info struct {
	op   uint8
	_    [3]byte
	arch uint32
	_    [2]uint64 // instruction and stack pointer
	nr   uint64
	args [6]uint64
}

const dirEnv = "WISBOX_TEST_SYSCALLS_IN"

// Child does the recorded work, with the directory given to Order, if Order started this process;
// then it doesn't return. Call it in an init function.
func Child(work func(dir string) error) {
	dir := os.Getenv(dirEnv)
	if dir == "" {
		return
	}
	if err := work(dir); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// Order makes this test binary's Child do its work in dir, and returns its calls in order:
// "rename", and "fsync PATH" with a path below dir. It omits the random part of a name, after its
// last hyphen.
func Order(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), dirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	return below(dir, trace(t, cmd))
}

// trace runs cmd until it ends, and returns its calls with the paths at that moment.
func trace(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	runtime.LockOSThread() // a tracer is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	err := cmd.Start()
	if errors.Is(err, syscall.EPERM) {
		hosttest.Lacks(t, "processes may not be traced here")
	}
	if err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		t.Fatal(err)
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACESYSGOOD|syscall.PTRACE_O_TRACECLONE|exitKill); err != nil {
		t.Fatal(err)
	}
	calls, end := follow(pid)
	_ = cmd.Process.Release()
	if !end.Exited() || end.ExitStatus() != 0 {
		t.Fatalf("the traced process ended with %#x", end)
	}
	return calls
}

// follow lets the process and its threads continue until it ends.
func follow(pid int) (calls []string, status syscall.WaitStatus) {
	_ = syscall.PtraceSyscall(pid, 0)
	for {
		tid, err := retry.Interrupted(func() (int, error) {
			return syscall.Wait4(-1, &status, syscall.WALL|unix.WNOTHREAD, nil)
		})
		if err != nil || tid == pid && (status.Exited() || status.Signaled()) {
			return calls, status
		}
		pass := 0
		switch {
		case !status.Stopped():
			continue
		case status.StopSignal() == syscallStop:
			calls = append(calls, entered(tid)...)
		case status.StopSignal() != syscall.SIGTRAP && status.StopSignal() != syscall.SIGSTOP:
			pass = int(status.StopSignal())
		}
		_ = syscall.PtraceSyscall(tid, pass)
	}
}

var renames = []uint64{unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2}

// entered returns the call that a thread has just begun, if it counts.
func entered(tid int) []string {
	var i info
	_, _, errno := syscall.Syscall6(syscall.SYS_PTRACE, ptraceGetSyscallInfo, uintptr(tid), unsafe.Sizeof(i), uintptr(unsafe.Pointer(&i)), 0, 0)
	switch {
	case errno != 0 || i.op != onEntry:
	case i.nr == unix.SYS_FSYNC || i.nr == unix.SYS_FDATASYNC:
		path, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", tid, i.args[0]))
		return []string{"fsync " + path}
	case slices.Contains(renames, i.nr):
		return []string{"rename"}
	}
	return nil
}

// below returns the renames, and the fsyncs below dir.
func below(dir string, calls []string) []string {
	var out []string
	for _, call := range calls {
		if path, ok := strings.CutPrefix(call, "fsync "); ok {
			rel, err := filepath.Rel(dir, path)
			if err != nil || !filepath.IsLocal(rel) {
				continue
			}
			if i := strings.LastIndexByte(rel, '-'); i >= 0 {
				rel = rel[:i]
			}
			call = "fsync " + rel
		}
		out = append(out, call)
	}
	return out
}
