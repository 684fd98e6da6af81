package vfs

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
)

// walkLimits bound one search, with all of its memory.
var walkLimits = budget.Limits{Memory: 64 << 20}

const (
	batchNames = 256   // entries of a directory handled at once
	longPath   = 2_000 // characters after which a path is opened from a directory further down

	maxOpenDirs = 256 // directories held open at a time
	nameSize    = 32  // bytes of a dirName
	jobMemory   = 200 // bytes of a job, about
)

// walk visits everything below a directory, at any depth, with several goroutines. It opens
// directories by descriptor and follows no link. It bounds time, memory and descriptors, and
// reports if it left something out.
type walk struct {
	descend func(path string) bool                        // whether to enter a directory; nil means all
	visit   func(worker int, d *openDir, names []dirName) // a batch of a directory's entries
	denied  func()                                        // a directory can't be listed; may be nil
	shared  bool                                          // a directory's further batches may go to other workers

	b    *budget.Budget
	pool *pool
	open atomic.Int64 // directories held open
	cuts cuts         // reasons why something was left out
}

// openDir is a directory that stays open as long as jobs need it.
type openDir struct {
	walk *walk
	fd   int
	path string // from the walk's base; "" for the base
	refs atomic.Int32
}

func (w *walk) opened(fd int, path string) *openDir {
	d := &openDir{walk: w, fd: fd, path: path}
	d.refs.Store(1)
	w.open.Add(1)
	return d
}

func (d *openDir) hold() *openDir {
	d.refs.Add(1)
	return d
}

func (d *openDir) release() {
	if d.refs.Add(-1) == 0 {
		_ = unix.Close(d.fd)
		d.walk.open.Add(-1)
	}
}

// place is a directory to visit: rel below anchor, path below the base.
type place struct {
	anchor *openDir
	rel    string
	path   string
}

// run visits everything below base and returns once no goroutine is left. If the caller's context
// ends, it returns an error; if the budget ends, it only leaves something out.
func (w *walk) run(b *budget.Budget, base *beneath.Handle) error {
	fd, err := beneath.OpenBelow(int(base.Fd()), "", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	w.b, w.pool = b, newPool(b)
	w.push(place{anchor: w.opened(fd, "")})
	w.pool.run(b.Context())
	return w.ended()
}

// ended returns an error if the caller's context has ended.
func (w *walk) ended() error {
	err := w.b.Check()
	if errors.Is(err, budget.ErrExceeded) {
		w.cuts.add(walkLimited)
		return nil
	}
	return err
}

// push queues a directory. It takes over the caller's reference to the anchor.
func (w *walk) push(at place) {
	ok := w.pool.push(job{
		cost: len(at.rel) + len(at.path) + jobMemory,
		do:   func(worker int) { w.dir(worker, at) },
		drop: at.anchor.release,
	})
	if !ok {
		w.cuts.add(walkLimited)
	}
}

func (w *walk) dir(worker int, at place) {
	defer at.anchor.release()
	fd, err := beneath.OpenBelow(at.anchor.fd, at.rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		w.unlisted(err)
		return
	}
	d := w.opened(fd, at.path)
	defer d.release()
	l := lister{walk: w, worker: worker, dir: d, below: at}
	if len(at.rel) > longPath {
		l.below = place{anchor: d, path: at.path}
	}
	err = beneath.ReadDir(fd, l.take)
	l.flush()
	if err != nil {
		w.unlisted(err)
	}
}

// unlisted counts a directory that can't be listed. One that is gone, or that a
// program has swapped for something else, is not a directory of the walk.
func (w *walk) unlisted(err error) {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		w.cuts.add(walkLimited)
	case w.denied != nil:
		w.denied()
	}
}

// lister collects the entries of one directory into batches.
type lister struct {
	walk    *walk
	worker  int
	dir     *openDir
	below   place // the place from which subdirectories are opened
	text    []byte
	names   []dirName
	ends    []int
	batches int
}

func (l *lister) take(e beneath.Entry) bool {
	l.text = append(l.text, e.Name...)
	l.ends = append(l.ends, len(l.text))
	l.names = append(l.names, dirName{kind: e.Type})
	if len(l.names) == batchNames {
		l.flush()
	}
	return l.walk.b.Step(1) == nil
}

func (l *lister) flush() {
	if len(l.names) == 0 {
		return
	}
	text, from := string(l.text), 0 // one allocation for all names of a batch
	for i, end := range l.ends {
		l.names[i].name = text[from:end]
		from = end
		if l.names[i].kind == unix.DT_DIR {
			l.down(l.names[i].name)
		}
	}
	l.hand()
	l.text, l.ends = l.text[:0], l.ends[:0]
}

// hand visits the batch, or passes it to another worker if the directory is large.
func (l *lister) hand() {
	w, names := l.walk, l.names
	l.batches++
	if !w.shared || l.batches == 1 || w.open.Load() > maxOpenDirs {
		w.visit(l.worker, l.dir, names)
		l.names = l.names[:0]
		return
	}
	l.names = nil
	d := l.dir.hold()
	ok := w.pool.push(job{
		cost: len(l.text) + len(names)*nameSize + jobMemory,
		do:   func(worker int) { defer d.release(); w.visit(worker, d, names) },
		drop: d.release,
	})
	if !ok {
		w.visit(l.worker, l.dir, names)
	}
}

func (l *lister) down(name string) {
	w := l.walk
	path := join(l.dir.path, name)
	if w.descend != nil && !w.descend(path) {
		return
	}
	if l.below.anchor == l.dir && w.open.Load() > maxOpenDirs {
		w.cuts.add(walkLimited)
		return
	}
	w.push(place{anchor: l.below.anchor.hold(), rel: join(l.below.rel, name), path: path})
}
