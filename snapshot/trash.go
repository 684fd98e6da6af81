package snapshot

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// trash is what a restore has taken out of the workspace. It is removed while the
// restore looks at the workspace again: to give blocks back is much of the work of
// replacing a file, and some of it is waiting for the disk.
type trash struct {
	staging *beneath.Staging // where all of it lies
	ctx     context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	names   []string
	working sync.WaitGroup
}

const (
	trashWorkers = 16 // they mostly wait
	// trashTime is how long a restore waits for what it has taken out to be gone.
	trashTime = 2 * time.Second
)

func newTrash(staging *beneath.Staging) *trash {
	t := &trash{staging: staging}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// drop keeps something for the next empty.
func (t *trash) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
}

// empty begins to remove all that was dropped. Entries that can't be removed are left to
// the next sweep.
func (t *trash) empty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range min(trashWorkers, len(t.names)) {
		t.working.Go(t.work)
	}
}

// wait returns when all is removed.
func (t *trash) wait() { t.working.Wait() }

// settle returns when all is removed, or after a while: the rest goes in the
// background then.
func (t *trash) settle() {
	late := time.AfterFunc(trashTime, t.stop)
	t.wait()
	if late.Stop() {
		return
	}
	<-t.ctx.Done()
	_ = t.staging.Free(t.names...) // the next sweep removes the rest
	t.names = nil
	t.ctx, t.stop = context.WithCancel(context.Background())
}

func (t *trash) work() {
	for t.ctx.Err() == nil {
		name, ok := t.next()
		if !ok {
			return
		}
		if unix.Unlinkat(int(t.staging.Dir().Fd()), name, 0) == nil {
			continue
		}
		if _, err := beneath.RemoveAllContext(t.ctx, t.staging.Dir(), name); err != nil && t.ctx.Err() != nil {
			t.drop(name)
		}
	}
}

func (t *trash) next() (name string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.names) == 0 {
		return "", false
	}
	name = t.names[len(t.names)-1]
	t.names = t.names[:len(t.names)-1]
	return name, true
}
