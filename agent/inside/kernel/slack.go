package kernel

import (
	"time"

	"golang.org/x/sys/unix"
)

// The Go runtime has a thread that watches the others (sysmon): it wakes up every 20 µs
// while one of them runs or waits in a system call, about 50 times for each call that
// waits longer than a millisecond. In processes whose work is to wait for others, that
// costs more than the work, and it delays the programs of other sandboxes. The watcher
// can't be configured, but a thread's pauses may be as much longer as its timer slack
// says, and the watcher inherits that from the thread that executes the program. Nothing
// here needs it earlier than that.
const (
	usualSlack = 50 * time.Microsecond // the kernel's default
	watchSlack = 10 * time.Millisecond // the watcher's own longest pause
)

// Relaxed executes something with the timer slack that is meant for the watchers of our
// own processes. This thread's own is the usual one afterwards.
func Relaxed(execute func()) {
	prctl(unix.PR_SET_TIMERSLACK, uintptr(watchSlack))
	defer Punctual()
	execute()
}

// Punctual gives this thread the usual timer slack, and so everything that it starts
// from now on. A thread that starts programs must have called it.
func Punctual() { prctl(unix.PR_SET_TIMERSLACK, uintptr(usualSlack)) }
