package overlay

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	// lockPoll is short because waiters of other processes have no queue.
	lockPoll = 2 * time.Millisecond
)

// LockWait is the maximum wait for a lock; then the error is busy.
var LockWait = patience.For(5 * time.Second)

// acquire waits for take at most LockWait and until ctx ends. After LockWait the error is busy with the given message;
// if ctx ends it is ctx's error.
func acquire(ctx context.Context, take func(context.Context, time.Duration) (bool, error), busy string) error {
	wait, cancel := context.WithTimeout(ctx, LockWait)
	defer cancel()
	ok, err := take(wait, lockPoll)
	switch {
	case ok:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return answer.Errorf(answer.Busy, "%s", busy)
	}
	return err
}

// mutex is an exclusive lock on a file. It is fair among the goroutines that share it, and excludes other processes and
// other mutexes on the file.
type mutex struct {
	path string
	ours *lock.Mutex // held while a goroutine of this process waits or works
}

func newMutex(path string) *mutex {
	return &mutex{path: path, ours: lock.New()}
}

func (m *mutex) lock(ctx context.Context, busy string) (unlock func(), err error) {
	fl := flock.New(m.path)
	take := func(wait context.Context, poll time.Duration) (bool, error) {
		if err := m.ours.Lock(wait); err != nil {
			return false, err
		}
		ok, err := fl.TryLockContext(wait, poll)
		if !ok {
			m.ours.Unlock()
		}
		return ok, err
	}
	if err := acquire(ctx, take, busy); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { _ = fl.Unlock(); m.ours.Unlock() }), nil
}
