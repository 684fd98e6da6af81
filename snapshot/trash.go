package snapshot

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/patience"
)

// trash holds the entries that a restore has moved out of the workspace. They are removed while
// the restore scans the workspace again: freeing blocks is much of the work of replacing a file,
// and partly a wait for the disk.
type trash struct {
	staging *beneath.Staging // the directory that holds them
	ctx     context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	names   []string
	working sync.WaitGroup
}

const (
	trashWorkers = 16 // they mostly wait
)

// trashTime is how long a restore waits for the removal.
var trashTime = patience.For(2 * time.Second)

func newTrash(staging *beneath.Staging) *trash {
	t := &trash{staging: staging}
	t.ctx, t.stop = context.WithCancel(context.Background())
	return t
}

// drop adds an entry for the next empty.
func (t *trash) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
}

// empty begins to remove all dropped entries. The next sweep removes those that remain after
// errors.
func (t *trash) empty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for range min(trashWorkers, len(t.names)) {
		t.working.Go(t.work)
	}
}

// wait returns when all is removed.
func (t *trash) wait() { t.working.Wait() }

// settle returns when all is removed, or after trashTime; the rest is then removed in the
// background.
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
