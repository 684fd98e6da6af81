// Package snapshot takes snapshots of a workspace and restores them in place, while programs run.
// The cost is that of the differences.
//
// A [Store] keeps each piece of content once, under its BLAKE3 hash, compressed with zstd, in
// packs that never change. A snapshot is the hash of a tree of directories and a small record. So
// a snapshot of an unchanged workspace costs nothing, snapshots can be restored in any order, and
// damage is found and its path reported. A file that was read once is not read again unless the
// kernel's times of the file change. (A program that writes through a memory map can delay that for
// some seconds, as for every tool that compares times.)
//
// A snapshot has the content of regular files, mode bits, modification times, extended attributes of
// the user's namespace (user.*), names of one file (hard links), empty directories and the text of
// links. It doesn't have owners, since all files have the same, other attributes such as access
// lists, FIFOs, sockets and devices; files with the former and the last three are reported.
//
// The package is not for backups, since a store is on the same disk as the workspace. It runs no
// program, doesn't read .gitignore and knows nothing of sessions.
package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Options configure a Store. Workspace, Tmp and Store are required. The caller closes them after
// the Store.
type Options struct {
	// Workspace is the directory that programs write to.
	Workspace *os.Root
	// Tmp is a directory on the same file system that programs can't see.
	Tmp *os.Root
	// Store is the directory for the snapshots, which belongs to the Store alone.
	Store *os.Root
	// Owner is the owner of restored files; nil means the user of this process.
	Owner *sandbox.Owner
	// Lock locks out other processes and the file tools while the store or the workspace is
	// changed; nil means no lock. Calls of one Store always exclude each other.
	Lock func(context.Context) (unlock func(), err error)
	// Quiesce pauses the workspace's programs until resume; nil if the host can't. It is called
	// only for calls that request it. still reports whether nothing can write to the workspace
	// meanwhile.
	Quiesce func(context.Context) (resume func(), still bool, err error)
	// Activity returns a number that grows, within 10 ms, when a program runs that can write to
	// the workspace: the processor time of all of them. A restore skips its second scan if the
	// number stays the same. After an error, or without Activity, it assumes that programs ran.
	Activity func(context.Context) (int64, error)
	// Room returns an error if the host's disk has no more room; nil means that it always has.
	// It is called before each MiB that is stored, and before a restore that writes more than it
	// frees. The call returns its error.
	Room func(context.Context) error
	// Fsync makes each snapshot and each restore durable before the call returns.
	Fsync bool
	// Limits bound the cost; a zero field means its default.
	Limits Limits
}

// Store holds the snapshots of one workspace. Its methods may be called from many goroutines at
// once and run one after the other. Every error is a *tool.Error.
type Store struct {
	opts    Options
	top     *os.File // the workspace
	dev     uint64
	staging *beneath.Staging
	packs   *os.Root
	records *os.Root
	objects *objects
	cache   *statCache
	working *lock.Mutex      // held while a call works
	tidied  [3]int64         // when the names of each directory had last changed, see tidy
	sizes   map[string]int64 // of the records, which never change

	life   sync.RWMutex // shared by every call, taken to close
	closed bool
}

// New opens the snapshots of a workspace. [Store.Recover] finishes a restore that was interrupted
// by the end of its process; every call that works on the workspace does that first.
func New(opts *Options) (*Store, error) {
	if opts == nil || opts.Workspace == nil || opts.Tmp == nil || opts.Store == nil {
		return nil, tool.Errorf(tool.Internal, "snapshots need a workspace, a directory for temporary files and a directory of their own")
	}
	s := &Store{opts: *opts, working: lock.New()}
	s.opts.Limits = opts.Limits.withDefaults()
	if err := s.open(); err != nil {
		return nil, storeError(errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.top, err = s.opts.Workspace.Open("."); err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(s.top.Fd()), &st); err != nil {
		return err
	}
	s.dev = uint64(st.Dev)
	if s.staging, err = beneath.NewStaging(s.opts.Tmp, s.opts.Owner, false); err != nil {
		return err
	}
	if s.packs, err = ensureDir(s.opts.Store, "packs"); err != nil {
		return err
	}
	if s.records, err = ensureDir(s.opts.Store, "records"); err != nil {
		return err
	}
	s.cache = loadCache(s.opts.Store)
	s.objects, err = openObjects(s.packs, s.opts.Fsync, room{bytes: s.opts.Limits.Store, objects: s.opts.Limits.Objects, ask: func() error { return s.room(context.Background()) }})
	return err
}

// room returns an error if the host has no room.
func (s *Store) room(ctx context.Context) error {
	if s.opts.Room == nil {
		return nil
	}
	return s.opts.Room(ctx)
}

func ensureDir(parent *os.Root, name string) (*os.Root, error) {
	if err := parent.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return parent.OpenRoot(name)
}

// Close waits for the running call. Later calls return an error of kind closed. It may be called
// twice.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	if s.objects != nil {
		errs = append(errs, s.objects.close())
	}
	for _, c := range []interface{ Close() error }{s.top, s.staging, s.packs, s.records} {
		switch c := c.(type) {
		case *os.File:
			if c != nil {
				errs = append(errs, c.Close())
			}
		case *os.Root:
			if c != nil {
				errs = append(errs, c.Close())
			}
		case *beneath.Staging:
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
	}
	return errors.Join(errs...)
}

// enter keeps the store open until leave.
func (s *Store) enter(ctx context.Context) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return nil, tool.Errorf(tool.Closed, "the session has ended; open a new one")
	}
	return s.life.RUnlock, nil
}

var lockWait = patience.For(5 * time.Second)

// lock begins a call that excludes other calls of the store and the file tools.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	free, err := s.takeTurn(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	if s.opts.Lock != nil {
		outer, err := s.opts.Lock(ctx)
		if err != nil {
			free()
			leave()
			return nil, tool.AsError(err)
		}
		inner := free
		free = func() { outer(); inner() }
	}
	if err := s.tidy(); err != nil {
		free()
		leave()
		return nil, storeError(err)
	}
	return func() { free(); leave() }, nil
}

func (s *Store) takeTurn(ctx context.Context) (free func(), err error) {
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if s.working.Lock(wait) == nil {
		return s.working.Unlock, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	return nil, tool.Errorf(tool.Busy, "another call uses the snapshots; retry")
}

// tidy removes the leftovers of a killed process, and opens the packs that others made. It looks only into directories
// whose names have changed since it last did.
func (s *Store) tidy() error {
	for i, root := range []*os.Root{s.opts.Store, s.packs, s.records} {
		now := coarseNow()
		info, err := root.Stat(".")
		if err != nil {
			return err
		}
		changed := info.ModTime().UnixNano()
		if changed == s.tidied[i] {
			continue
		}
		err = removeTemps(root)
		if root == s.packs {
			err = errors.Join(err, s.objects.refresh())
		}
		if err != nil {
			return err
		}
		if s.tidied[i] = 0; changed < now { // else the names could change again without a change of this time
			s.tidied[i] = changed
		}
	}
	return nil
}

func removeTemps(root *os.Root) error {
	names, err := listNames(root)
	for _, name := range names {
		if len(name) > len(tempPrefix) && name[:len(tempPrefix)] == tempPrefix {
			err = errors.Join(err, ignoreMissing(root.Remove(name)))
		}
	}
	return err
}

// scan scans the workspace. put stores content that isn't known.
func (s *Store) scan(b *budget.Budget, put func([]byte) (Hash, error), known func(Hash) bool) (*entry, names, error) {
	w := &scan{top: int(s.top.Fd()), dev: s.dev, cache: s.cache, known: known, put: put, budget: b, limits: s.opts.Limits}
	root, err := w.run()
	return root, w.unstable, err
}

// look is like scan, but stores nothing. An unreadable entry differs from everything.
func (s *Store) look(b *budget.Budget) (*entry, error) {
	w := &scan{
		top: int(s.top.Fd()), dev: s.dev, cache: s.cache, known: func(Hash) bool { return true }, put: justHash,
		budget: b, limits: s.opts.Limits, lenient: true,
	}
	root, err := w.run()
	if err == nil {
		_, err = joinNames(b, root)
	}
	if err != nil {
		return nil, err
	}
	return root, finish(b, root, justHash)
}

func justHash(b []byte) (Hash, error) { return hashOf(b), nil }

// finish drops entries that were gone before they were read and computes the hash of every
// directory, the deepest first. It works on the directories of the top at the same time.
func finish(b *budget.Budget, top *entry, put func([]byte) (Hash, error)) error {
	var below errgroup.Group
	below.SetLimit(runtime.GOMAXPROCS(0))
	top.dir.prune()
	for i := range top.dir.entries {
		if c := &top.dir.entries[i]; c.kind == folder {
			below.Go(func() error { return (&finisher{budget: b, put: put}).tree(c) })
		}
	}
	if err := below.Wait(); err != nil {
		return err
	}
	return (&finisher{budget: b, put: put}).dir(top)
}

// finisher computes the hashes of directories.
type finisher struct {
	budget *budget.Budget
	put    func([]byte) (Hash, error)
	buf    []byte
}

func (f *finisher) tree(e *entry) error {
	e.dir.prune()
	for i := range e.dir.entries {
		if c := &e.dir.entries[i]; c.kind == folder {
			if err := f.tree(c); err != nil {
				return err
			}
		}
	}
	return f.dir(e)
}

// dir computes the hash of a directory after those of the directories in it.
func (f *finisher) dir(e *entry) (err error) {
	size := e.dir.encodedSize()
	if size > maxObject {
		return tool.Errorf(tool.Limit, "a directory of the workspace has too many entries; remove some, then retry")
	}
	if err := f.budget.Hold(size); err != nil {
		return tooLarge(err, "workspace")
	}
	defer f.budget.Release(size)
	f.buf = e.dir.encode(slices.Grow(f.buf[:0], size))
	e.hash, err = f.put(f.buf)
	if cap(f.buf) > chunkSize {
		f.buf = nil
	}
	return err
}

// prune drops entries that were gone before they were read.
func (d *dir) prune() {
	if d == nil || !slices.ContainsFunc(d.entries, entry.lost) {
		return
	}
	d.entries = slices.DeleteFunc(d.entries, entry.lost)
	d.same = false
}

func (e entry) lost() bool { return e.kind == gone || e.kind == folder && e.dir == nil }
