package hold

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// slack is the timer slack of a holder. The Go runtime's monitor pauses 20 µs at a time while
// anything runs or waits in a system call, which is most of a holder's work: of 98 system calls for
// a command, 23 were its pauses, with as many wake-ups. A thread inherits the slack of the thread
// that started it, and the monitor starts before any code of ours.
const slack = time.Millisecond

// relaxed starts a process with that slack. This thread's own slack stays unchanged.
func relaxed(start func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if usual, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil && usual > 0 {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(usual), 0, 0, 0) }()
	}
	return start()
}
