package snapshot

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dirWalk makes directories right, several at a time: a directory's own mode and
// time come after all that is below it.
type dirWalk struct {
	pool *pool

	mu   sync.Mutex
	open map[*dirWork]struct{} // not done yet
}

func newDirWalk(p *pool) *dirWalk { return &dirWalk{pool: p, open: map[*dirWork]struct{}{}} }

// dirWork is a directory to be made right: first what isn't a directory, then
// those below, at last its own mode and time.
type dirWork struct {
	up         *dirWork
	at         *place
	have, want *entry
	left       atomic.Int32 // itself and the parts of it that aren't done
	finished   bool         // it has its own mode and time already, or gets them from another
}

// push has a directory made; do calls done.
func (d *dirWalk) push(w *dirWork, do func(w *dirWork, buf []byte) error) {
	w.left.Store(1)
	d.mu.Lock()
	d.open[w] = struct{}{}
	d.mu.Unlock()
	d.pool.push(job{do: func(buf []byte) error { return do(w, buf) }, drop: func() {}})
}

// done is called when the directory's own entries are right, and for each part
// that was counted in left. The last one finishes it.
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

// release lets go of what an error has left, when nothing works any more.
func (d *dirWalk) release() {
	for w := range d.open {
		w.at.release()
	}
}

// finish gives the directory its own mode and time after those below it have theirs.
func (w *dirWork) finish() error {
	if w.finished {
		return nil
	}
	fd, err := w.at.open(unix.O_PATH)
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
