package snapshot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool"
)

const (
	tries     = 3  // looks at a file or directory that keeps changing
	fileBatch = 64 // files of a directory that one worker reads in one go
)

// scan looks at a whole tree that programs may change meanwhile and gives it
// with the hashes of its files. It opens nothing but directories and regular
// files, follows no link and never blocks.
type scan struct {
	top    int // descriptor of the tree's directory
	dev    uint64
	cache  *statCache
	known  func(Hash) bool            // a cached hash is good only with this
	put    func([]byte) (Hash, error) // takes each piece of content
	limits Limits
	placed *placed // what this restore has written; may be nil
	want   *entry  // what the tree is compared with; nil: nothing

	pool    *pool
	entries atomic.Int64
	read    atomic.Int64 // bytes
	modes   modes

	mu       sync.Mutex
	unstable []string // paths of directories that kept changing
}

// run gives the top's entry with the tree below it.
func (s *scan) run(ctx context.Context) (root *entry, err error) {
	s.pool = newPool(ctx)
	defer func() { err = errors.Join(err, s.modes.restore()) }()
	var st unix.Stat_t
	if err := unix.Fstat(s.top, &st); err != nil {
		return nil, err
	}
	root = &entry{}
	root.take(&st)
	s.pushDir(newPlace(s.top), root, s.want)
	if err := s.pool.run(); err != nil {
		return nil, err
	}
	if root.dir == nil {
		return nil, tool.Errorf(tool.Closed, "the workspace is gone; open a new session")
	}
	return root, nil
}

func (s *scan) pushDir(at *place, e, want *entry) {
	s.pool.push(job{do: func([]byte) error { return s.scanDir(at, e, want) }, drop: at.release})
}

// scanDir lists a directory and hands out the work on its entries.
func (s *scan) scanDir(at *place, e, want *entry) error {
	if at.depth > maxDepth {
		return tool.Errorf(tool.Limit, "the workspace has directories nested deeper than %d levels; remove them, then retry", maxDepth)
	}
	d, err := s.list(at)
	if vanished(err) {
		e.kind = gone
		return nil
	}
	if err != nil {
		return beneath.Error(err, shown(at.path("")))
	}
	e.dir = d
	s.handOut(at, d, want)
	return nil
}

func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// list reads the directory until it stays the same while it is read.
func (s *scan) list(at *place) (*dir, error) {
	fd, err := s.modes.openDir(at)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for range tries {
		d, same, err := s.listOnce(fd)
		if err != nil || same {
			return d, err
		}
		s.entries.Add(-int64(len(d.entries)))
	}
	s.mu.Lock()
	s.unstable = append(s.unstable, at.path(""))
	s.mu.Unlock()
	d, _, err := s.listOnce(fd)
	return d, err
}

func (s *scan) listOnce(fd int) (d *dir, same bool, err error) {
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return nil, false, err
	}
	if uint64(before.Dev) != s.dev {
		return nil, false, beneath.ErrEscape
	}
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, false, err
	}
	d = &dir{}
	if err := s.readNames(fd, d); err != nil {
		return nil, false, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return nil, false, err
	}
	slices.SortFunc(d.entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	d.entries = slices.CompactFunc(d.entries, func(a, b entry) bool { return a.name == b.name })
	return d, stampOf(&before) == stampOf(&after), nil
}

func (s *scan) readNames(fd int, d *dir) error {
	full := false
	err := beneath.ReadDir(fd, func(n beneath.Entry) bool {
		if s.entries.Add(1) > s.limits.Entries {
			full = true
			return false
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, n.Name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return true // gone since
		}
		e := entry{name: strings.Clone(n.Name)}
		e.take(&st)
		if e.kind == symlink {
			e.target = readlink(fd, e.name)
		}
		d.entries = append(d.entries, e)
		return s.pool.ctx.Err() == nil
	})
	if full {
		return tool.Errorf(tool.Limit, "the workspace has more than %d entries; remove some, then retry", s.limits.Entries)
	}
	return errors.Join(err, s.pool.ctx.Err())
}

func readlink(fd int, name string) string {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, name, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// handOut makes a job of each subdirectory and of each batch of files to read.
func (s *scan) handOut(at *place, d *dir, want *entry) {
	var batch []*entry
	for i := range d.entries {
		switch e := &d.entries[i]; {
		case e.kind == folder:
			s.pushDir(at.below(e.name), e, want.child(e.name))
		case e.kind == symlink && e.target == "":
			e.kind = gone
		case e.kind == file && !s.differs(e, want) && !s.cached(e):
			if batch = append(batch, e); len(batch) == fileBatch {
				s.pushFiles(at, batch)
				batch = nil
			}
		}
	}
	if len(batch) > 0 {
		s.pushFiles(at, batch)
	}
}

// differs says that a file can't have the wanted content, so there is no use in
// reading it. Its hash stays zero, and that of its directories means nothing.
func (s *scan) differs(e, want *entry) bool {
	if s.want == nil {
		return false
	}
	w := want.child(e.name)
	return w == nil || w.kind != file || w.size != e.size
}

func (s *scan) cached(e *entry) bool {
	if e.size == 0 {
		return true
	}
	if s.placed.holds(e) {
		return true
	}
	found, ok := s.cache.lookup(e.stamp())
	if !ok || !s.known(found.hash) {
		return false
	}
	e.hash, e.list = found.hash, found.list
	return true
}

func (s *scan) pushFiles(at *place, files []*entry) {
	at.hold()
	s.pool.push(job{do: func(buf []byte) error { return s.readFiles(at, files, buf) }, drop: at.release})
}

func (s *scan) readFiles(at *place, files []*entry, buf []byte) error {
	fd, err := at.open(unix.O_PATH)
	if vanished(err) {
		for _, e := range files {
			e.kind = gone
		}
		return nil
	}
	if err != nil {
		return beneath.Error(err, shown(at.path("")))
	}
	defer unix.Close(fd)
	for _, e := range files {
		if err := s.pool.ctx.Err(); err != nil {
			return err
		}
		if err := s.readFile(fd, e, buf); err != nil {
			return beneath.Error(err, shown(at.path(e.name)))
		}
	}
	return nil
}
