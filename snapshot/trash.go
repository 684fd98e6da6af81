package snapshot

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
)

// trash is what a restore has taken out of the workspace. It is removed while the
// restore looks at the workspace again: to give blocks back is much of the work of
// replacing a file, and some of it is waiting for the disk.
type trash struct {
	dir *os.File // where all of it lies

	mu      sync.Mutex
	names   []string
	working sync.WaitGroup
}

const trashWorkers = 16 // they mostly wait

// drop keeps something for the next empty.
func (t *trash) drop(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = append(t.names, name)
}

// empty begins to remove all that was dropped. What can't be removed is left to
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

func (t *trash) work() {
	for {
		name, ok := t.next()
		if !ok {
			return
		}
		if unix.Unlinkat(int(t.dir.Fd()), name, 0) != nil {
			_, _ = beneath.RemoveAll(t.dir, name)
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
