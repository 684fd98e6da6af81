package snapshot

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool"
)

const (
	tries     = 3  // readings of a file or directory that keeps changing
	fileBatch = 64 // files of a directory that one worker reads in one go
)

// scan reads a whole tree, which programs may change meanwhile, with the hashes of its files. It
// opens only directories and regular files, follows no link and never blocks.
type scan struct {
	top    int // descriptor of the tree's directory
	dev    uint64
	cache  *statCache
	known  func(Hash) bool            // a cached hash is good only with this
	put    func([]byte) (Hash, error) // takes each piece of content
	budget *budget.Budget
	limits Limits
	// lenient treats an unreadable entry as one that differs from everything, which is enough
	// to replace or report it.
	lenient bool
	placed  *placed           // what this restore has written; may be nil
	want    *entry            // the tree to compare with, or nil
	groups  map[*entry]*group // of want
	old     *entry            // the tree of an earlier scan, or nil

	pool    *pool
	entries atomic.Int64
	read    atomic.Int64 // bytes
	held    atomic.Int64 // of the budget's memory, for the tree
	modes   modes

	mu       sync.Mutex
	unstable names // directories that kept changing
	firsts   map[uint64]*entry
	others   []otherName
}

// otherName is a name of a file that is read under its first name.
type otherName struct {
	at       *place
	e, first *entry
}

// run returns the top's entry with the tree below it.
func (s *scan) run() (root *entry, err error) {
	s.pool = newPool(s.budget.Context())
	defer func() { err = errors.Join(err, s.modes.restore()) }()
	var st unix.Stat_t
	if err := unix.Fstat(s.top, &st); err != nil {
		return nil, err
	}
	root = &entry{}
	root.take(&st)
	s.pushDir(newPlace(s.top), root, s.want, s.old)
	err = s.pool.run()
	if err == nil {
		err = s.joinOthers()
	}
	for _, o := range s.others {
		o.at.release()
	}
	if err != nil {
		return nil, tooLarge(err, "workspace")
	}
	if root.dir == nil {
		return nil, tool.Errorf(tool.Closed, "the workspace is gone; open a new session")
	}
	return root, nil
}

func (s *scan) pushDir(at *place, e, want, old *entry) {
	s.pool.push(job{do: func([]byte) error { return s.scanDir(at, e, want, old) }, drop: at.release})
}

// scanDir lists a directory and queues the work on its entries.
func (s *scan) scanDir(at *place, e, want, old *entry) error {
	if at.depth > maxDepth {
		return tool.Errorf(tool.Limit, "the workspace has directories nested deeper than %d levels; remove them, then retry", maxDepth)
	}
	d, err := s.list(at, e, inside(old))
	if vanished(err) {
		e.kind = gone
		return nil
	}
	if s.mayPass(err) && at.up != nil {
		e.kind = special
		return nil
	}
	if err != nil {
		return beneath.Error(err, at.clipped(""))
	}
	e.dir = d
	s.handOut(at, d, want, old)
	return nil
}

// mayPass reports whether an error concerns only a single entry, so that the scan can go on.
func (s *scan) mayPass(err error) bool {
	if errors.Is(err, budget.ErrExceeded) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
		return false
	}
	return err != nil && s.lenient && tool.KindOf(err) != tool.Limit && s.budget.Context().Err() == nil
}

// hold charges memory for the tree.
func (s *scan) hold(n int) error {
	s.held.Add(int64(n))
	return s.budget.Hold(n)
}

func (s *scan) release(n int) {
	s.held.Add(-int64(n))
	s.budget.Release(n)
}

func vanished(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// list lists a directory again until it doesn't change during the listing.
func (s *scan) list(at *place, e *entry, old *dir) (*dir, error) {
	fd, err := s.modes.openDir(at)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := errors.Join(s.hold(dirMemory), s.noteAttributes(fd, e)); err != nil {
		return nil, err
	}
	for range tries {
		d, same, err := s.listOnce(fd, old)
		if err != nil || same {
			return d, err
		}
		s.entries.Add(-int64(len(d.entries)))
		s.release(d.memory())
	}
	s.mu.Lock()
	s.unstable.add(at, "")
	s.mu.Unlock()
	d, _, err := s.listOnce(fd, old)
	return d, err
}

// memory returns the bytes charged for the entries.
func (d *dir) memory() int {
	n := len(d.entries) * entryMemory
	for i := range d.entries {
		n += len(d.entries[i].name) + len(d.entries[i].target)
	}
	return n
}

func (s *scan) listOnce(fd int, old *dir) (d *dir, same bool, err error) {
	now := coarseNow()
	var before, after unix.Stat_t
	if err := unix.Fstat(fd, &before); err != nil {
		return nil, false, err
	}
	if uint64(before.Dev) != s.dev {
		return nil, false, beneath.ErrEscape
	}
	d = &dir{stamp: stampOf(&before), settled: before.Ctim.Nano() < now}
	names := old.namesIf(d.stamp)
	if names == nil {
		if names, err = s.readNames(fd); err != nil {
			return nil, false, err
		}
	}
	if err := s.lookAtEach(fd, d, names, old); err != nil {
		return nil, false, err
	}
	if err := unix.Fstat(fd, &after); err != nil {
		return nil, false, err
	}
	return d, d.stamp == stampOf(&after), nil
}

// namesIf returns the names of an earlier scan, if they can't have changed.
func (d *dir) namesIf(now stamp) []string {
	if d == nil || !d.settled || d.stamp != now {
		return nil
	}
	names := make([]string, len(d.entries))
	for i := range d.entries {
		names[i] = d.entries[i].name
	}
	return names
}

// Bounds of a piece of memory for names, in bytes. A name has at most 255.
const (
	leastText = 256
	mostText  = 64 << 10
)

// readNames returns all names of a directory, sorted.
func (s *scan) readNames(fd int) ([]string, error) {
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return nil, err
	}
	var names []string
	var text strings.Builder // of the newest names: a piece of memory for many, which never moves
	var full error
	held := 0
	defer func() { s.release(held) }() // [scan.lookAtEach] charges the names that are kept
	err := beneath.ReadDir(fd, func(n beneath.Entry) bool {
		if s.entries.Load()+int64(len(names)) >= s.limits.Entries {
			full = s.tooMany()
			return false
		}
		held += len(n.Name) + entryMemory
		if full = s.hold(len(n.Name) + entryMemory); full != nil {
			return false
		}
		if text.Cap()-text.Len() < len(n.Name) {
			size := min(max(2*text.Cap(), leastText), mostText)
			text = strings.Builder{}
			text.Grow(size)
		}
		at := text.Len()
		text.WriteString(n.Name)
		names = append(names, text.String()[at:])
		full = s.budget.Step(1)
		return full == nil
	})
	if full != nil {
		return nil, full
	}
	slices.Sort(names)
	return slices.Compact(names), errors.Join(err, s.pool.ctx.Err())
}

func (s *scan) tooMany() error {
	return tool.Errorf(tool.Limit, "the workspace has more than %d entries; remove some, then retry", s.limits.Entries)
}

// lookAtEach makes the entries of a directory. It reuses those of an earlier scan that have not
// changed since.
func (s *scan) lookAtEach(fd int, d *dir, names []string, old *dir) error {
	if s.entries.Add(int64(len(names))) > s.limits.Entries {
		return s.tooMany()
	}
	known := entriesOf(old)
	if err := s.hold(len(names) * entryMemory); err != nil {
		return err
	}
	d.entries = make([]entry, 0, len(names))
	var path []byte
	for _, name := range names {
		if err := s.pool.ctx.Err(); err != nil {
			return err
		}
		if err := s.hold(len(name)); err != nil {
			return err
		}
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			s.entries.Add(-1) // gone since
			continue
		}
		e := entry{name: name}
		e.take(&st)
		for len(known) > 0 && known[0].name < name {
			known = known[1:]
		}
		if len(known) > 0 && known[0].sure && known[0].name == name && known[0].stamp() == e.stamp() {
			e.hash, e.list, e.sure, e.more = known[0].hash, known[0].list, true, known[0].more.plain()
		}
		if e.kind == file && e.size == 0 {
			var has bool
			has, path = sys.HasAttributes(fd, name, path)
			e.sure = e.sure || !has // then there is nothing to read
		}
		if e.kind == symlink {
			e.target = readlink(fd, e.name)
			if err := s.hold(len(e.target)); err != nil {
				return err
			}
		}
		d.entries = append(d.entries, e)
	}
	return nil
}

func entriesOf(d *dir) []entry {
	if d == nil {
		return nil
	}
	return d.entries
}

func readlink(fd int, name string) string {
	var buf [unix.PathMax]byte
	n, err := unix.Readlinkat(fd, name, buf[:])
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// handOut queues a job for each subdirectory and for each batch of files to read. It notes
// whether there is nothing to read and everything outside the subdirectories is as wanted.
func (s *scan) handOut(at *place, d *dir, want, old *entry) {
	var batch []*entry
	d.same = want != nil
	_ = pairs(d, inside(want), func(e, w *entry) error {
		if e == nil {
			d.same = false
			return nil
		}
		if e.kind == file && !s.differs(e, w) && !s.cached(e) {
			d.same = false
			if s.isOther(at, e) {
				return nil
			}
			if batch = append(batch, e); len(batch) == fileBatch {
				s.pushFiles(at, batch)
				batch = nil
			}
			return nil
		}
		if e.kind == symlink && e.target == "" {
			e.kind = gone
		}
		d.same = d.same && w != nil && sameContent(e, w) && sameMode(e, w) && e.mtime == w.mtime && (e.kind != file || e.links < 2 && s.groups[w] == nil)
		switch {
		case e.kind == folder && want != nil && (w == nil || w.kind != folder):
			e.dir = &dir{} // it will be removed, whatever is in it
		case e.kind == folder:
			s.pushDir(at.below(e.name), e, w, old.child(e.name))
		}
		return nil
	})
	if len(batch) > 0 {
		s.pushFiles(at, batch)
	}
}

// differs reports whether a file can't have the wanted content, so that it need not be read. Its
// hash stays zero.
func (s *scan) differs(e, w *entry) bool {
	return s.want != nil && (w == nil || w.kind != file || w.size != e.size)
}

func (s *scan) cached(e *entry) bool {
	if e.sure || s.placed.holds(e) {
		return true
	}
	found, at, ok := s.cache.find(e.stamp())
	if !ok || e.size > 0 && !s.known(found.hash) || found.more != nil && found.more.attrs != (Hash{}) && !s.known(found.more.attrs) {
		return false
	}
	e.hash, e.list, e.sure, e.cached, e.more = found.hash, found.list, true, at, found.more
	return true
}

func (s *scan) pushFiles(at *place, files []*entry) {
	at.hold()
	s.pool.push(job{do: func(buf []byte) error { return s.readFiles(at, files, buf) }, drop: at.release})
}

// isOther reports whether a file is read under another name already, so that its content is read once.
func (s *scan) isOther(at *place, e *entry) bool {
	if e.links < 2 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.firsts[e.ino]
	if first == nil {
		if s.firsts == nil {
			s.firsts = map[uint64]*entry{}
		}
		s.firsts[e.ino] = e
		return false
	}
	s.others = append(s.others, otherName{at.hold(), e, first})
	return true
}

// joinOthers gives the other names of files the content that was read under the first one. It reads
// those again whose file is another one by now.
func (s *scan) joinOthers() error {
	s.pool = newPool(s.budget.Context())
	for _, o := range s.others {
		if f := o.first; f.kind == file && !f.unstable && f.ino == o.e.ino && (f.sure || f.hash != (Hash{}) || f.size == 0) {
			o.e.hash, o.e.list, o.e.size, o.e.mtime, o.e.ctime, o.e.mode, o.e.sure, o.e.more = f.hash, f.list, f.size, f.mtime, f.ctime, f.mode, f.sure, f.more
			continue
		}
		s.pushFiles(o.at, []*entry{o.e})
	}
	return s.pool.run()
}

func (s *scan) readFiles(at *place, files []*entry, buf []byte) error {
	fd, err := at.open(sys.Place)
	if vanished(err) {
		for _, e := range files {
			e.kind = gone
		}
		return nil
	}
	if s.mayPass(err) {
		for _, e := range files {
			e.hash, e.sure = Hash{}, false
		}
		return nil
	}
	if err != nil {
		return beneath.Error(err, at.clipped(""))
	}
	defer unix.Close(fd)
	for _, e := range files {
		if err := s.pool.ctx.Err(); err != nil {
			return err
		}
		err := s.readFile(fd, e, buf)
		if s.mayPass(err) {
			e.hash, e.sure = Hash{}, false
			continue
		}
		if err != nil {
			return beneath.Error(err, at.clipped(e.name))
		}
	}
	return nil
}
