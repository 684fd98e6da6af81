// Package retry is how this repository does something again: with a count and,
// where it waits, with a context. A program can make a call fail in the same way
// for ever (a lease on a file is EAGAIN for as long as its holder lives), so no
// loop asks an error alone whether to go on. The test of this package refuses
// loops elsewhere that do.
package retry

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// interruptions is how many signals in a row one call is forgiven.
const interruptions = 100

// Interrupted makes a call that a signal may interrupt (EINTR), and makes it again
// then, at most 100 times.
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

// Do makes a call, and makes it again as long as again says so of its error, t.Count
// times in all. It ends early with ctx. The answer is the last call's error.
func (t Times) Do(ctx context.Context, again func(error) bool, call func() error) error {
	err := call()
	for tries := 1; tries < t.Count && err != nil && again(err) && sleep(ctx, t.Pause); tries++ {
		err = call()
	}
	return err
}

// sleep says whether ctx still lives after d.
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
