package vfs

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/sys"
)

// Touched lists the changes of a workspace since a moment, as far as they can be seen from the
// entries that exist now.
type Touched struct {
	// Paths are sorted, as results show them. A directory ends in a slash: it is new,
	// its mode changed, or entries were added to it, renamed or removed.
	Paths []string
	More  int64 // number of paths found but not in Paths
	Cut   bool  // the budget ended, or directories can't be listed: there may be more
}

// Mark returns the moment from which [FS.ChangedSince] reports. It is the kernel's time as
// inodes get it, which lags some milliseconds behind the clock.
func Mark() time.Time {
	var ts unix.Timespec
	if unix.ClockGettime(sys.FileClock, &ts) != nil {
		return time.Now().Add(-time.Second)
	}
	return time.Unix(ts.Unix())
}

// ChangedSince finds the changes since a [Mark] and lists at most that many paths. It compares the
// times of status changes, which no program can set. Changes within the same tick of the kernel's
// clock as the mark, at most 10 ms before it, are included.
func (f *FS) ChangedSince(b *budget.Budget, mark time.Time, most int) (Touched, error) {
	base, err := f.reach(b.Context(), "/", "path", f.opts.Paths.Parse, f.tree.OpenDir)
	if err != nil {
		return Touched{}, err
	}
	defer base.close()
	c := &changes{paths: f.opts.Paths, mark: mark, most: most}
	if !changedAt(&base.Stat).Before(mark) {
		c.add(c.paths.Display(""))
	}
	w := &walk{shared: true, visit: c.visit}
	w.denied = func() { w.cuts.add(walkLimited) }
	if err := w.run(b, base.Handle); err != nil {
		return Touched{}, in(fail(err, ""), "path")
	}
	slices.Sort(c.Paths)
	c.Cut = w.cuts.met.Load() != 0
	return c.Touched, nil
}

// changes collects the paths of [FS.ChangedSince].
type changes struct {
	paths Grammar
	mark  time.Time
	most  int

	mu sync.Mutex
	Touched
}

func (c *changes) visit(_ int, d *openDir, names []dirName) {
	for i, n := range names {
		if i%16 == 0 && d.walk.b.Check() != nil {
			return
		}
		var st unix.Stat_t
		if unix.Fstatat(d.fd, n.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || changedAt(&st).Before(c.mark) {
			continue
		}
		path := c.paths.Display(join(d.path, n.name))
		if kindOf(&st) == Directory {
			path += "/"
		}
		c.add(path)
	}
}

func (c *changes) add(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.Paths) == c.most {
		c.More++
		return
	}
	c.Paths = append(c.Paths, path)
}

func changedAt(st *unix.Stat_t) time.Time { return time.Unix(st.Ctim.Unix()) }
