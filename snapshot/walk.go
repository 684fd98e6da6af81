package snapshot

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// dirWalk applies changes to directories, several at a time. A directory gets its own mode and
// time after everything below it.
type dirWalk struct {
	pool *pool

	mu   sync.Mutex
	open map[*dirWork]struct{} // not done yet
}

func newDirWalk(p *pool) *dirWalk { return &dirWalk{pool: p, open: map[*dirWork]struct{}{}} }

// dirWork is the work on one directory: first its files, then the directories below, at last its
// own mode and time.
type dirWork struct {
	up         *dirWork
	at         *place
	have, want *entry
	left       atomic.Int32 // itself and its unfinished parts
	finished   bool         // it has its own mode and time already, or gets them from another
}

// push queues the work on a directory; do calls done.
func (d *dirWalk) push(w *dirWork, do func(w *dirWork, buf []byte) error) {
	w.left.Store(1)
	d.mu.Lock()
	d.open[w] = struct{}{}
	d.mu.Unlock()
	d.pool.push(job{do: func(buf []byte) error { return do(w, buf) }, drop: func() {}})
}

// done is called when the directory's own entries are done, and for each part counted in left. The
// last call finishes the directory.
func (d *dirWalk) done(w *dirWork) error {
	for ; w != nil && w.left.Add(-1) == 0; w = w.up {
		if err := w.finish(); err != nil {
			return err
		}
		d.mu.Lock()
		delete(d.open, w)
		d.mu.Unlock()
		w.at.release()
	}
	return nil
}

// release frees the directories that an error has left, once no job runs any more.
func (d *dirWalk) release() {
	for w := range d.open {
		w.at.release()
	}
}

// finish sets the directory's own mode and time, after those of the directories below it.
func (w *dirWork) finish() error {
	if w.finished {
		return nil
	}
	fd, err := w.at.open(sys.Place)
	if err != nil {
		return skippable(err)
	}
	defer unix.Close(fd)
	return finishDir(fd, w.want)
}

func finishDir(fd int, want *entry) error {
	var is unix.Stat_t
	if err := unix.Fstat(fd, &is); err != nil {
		return err
	}
	return setAttributes(fd, &is, want)
}
