// Package retry repeats calls, with a bounded count and, if it waits, with a context. A program can
// make a call fail in the same way for ever (a lease on a file causes EAGAIN for as long as its
// holder lives), so no loop may let an error alone decide whether to continue. The test of this
// package refuses such loops in the whole repository.
package retry

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// interruptions is the maximum number of signals in a row that may interrupt a call.
const interruptions = 100

// Interrupted makes a call that a signal may interrupt (EINTR), and then repeats it, at most 100
// times.
func Interrupted(call func() (int, error)) (n int, err error) {
	for range interruptions {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return n, err
}

// Times bounds a retry.
type Times struct {
	Count int           // calls in all, at least one
	Pause time.Duration // between two of them
}

// Do makes a call, and repeats it while again returns true for its error, at most t.Count times in
// all. It ends early with ctx. It returns the last call's error.
func (t Times) Do(ctx context.Context, again func(error) bool, call func() error) error {
	err := call()
	for tries := 1; tries < t.Count && err != nil && again(err) && sleep(ctx, t.Pause); tries++ {
		err = call()
	}
	return err
}

// sleep reports whether ctx is still alive after d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
