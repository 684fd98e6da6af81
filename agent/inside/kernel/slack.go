package kernel

import (
	"time"

	"golang.org/x/sys/unix"
)

// The Go runtime has a thread that watches the others (sysmon): it wakes up every 20 µs
// while one of them runs or waits in a system call, about 50 times for each call that
// waits longer than a millisecond. In processes that mostly wait for others, that costs more than their work, and it
// delays the programs of other sandboxes. The watcher can't be configured, but the timer slack lets the kernel prolong
// a thread's pauses, and the watcher inherits it from the thread that executes the program. Nothing here needs shorter
// pauses.
const (
	usualSlack = 50 * time.Microsecond // the kernel's default
	watchSlack = 10 * time.Millisecond // the watcher's own longest pause
)

// Relaxed calls execute with the timer slack for the watchers of our own processes. Afterwards this thread has the
// usual one again.
func Relaxed(execute func()) {
	_ = prctl(unix.PR_SET_TIMERSLACK, uintptr(watchSlack))
	defer Punctual()
	execute()
}

// Punctual gives the usual timer slack to this thread and everything that it starts from now on. A thread must call it
// before it starts programs.
func Punctual() { _ = prctl(unix.PR_SET_TIMERSLACK, uintptr(usualSlack)) }
