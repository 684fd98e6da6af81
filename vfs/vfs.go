// Package vfs is the workspace as an agent sees it: the grammar of paths, the
// file tools (ls, read_file, write_file, edit_file, glob, grep, rm), versions of
// files, and the same for Go callers. It works on the workspace's directory from
// the host, so it needs no container, and programs may write the same directory
// at the same time and on purpose badly: all access goes through package
// beneath, which can't leave it. It makes no sessions, mounts or snapshots.
package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Mount is where programs see the workspace.
const Mount = "/workspace"

// Options says what New works on. Root alone is required.
type Options struct {
	// Root is the workspace. It stays the caller's and must outlive the FS.
	Root *os.Root
	// Tmp is a directory on the same file system that no program sees; files are
	// made there and renamed into place. It stays the caller's. Without it the
	// workspace can only be read: a change is unsupported.
	Tmp *os.Root
	// Owner of what is made; nil leaves it to the user of this process.
	Owner *sandbox.Owner
	// Lock is taken for each change, to keep other processes out; nil takes none.
	// Calls of one FS exclude each other anyway.
	Lock func(context.Context) (unlock func(), err error)
	// Paths says which paths the tools take, and show as they are; default [ASCII].
	// Import, Export and Watch take those of [Any], what programs call their files.
	Paths Grammar
	// ReadBeforeWrite makes it a conflict to change an existing file that was not
	// read, or that changed since.
	ReadBeforeWrite bool
	// Fsync makes each change durable before it is acknowledged.
	Fsync bool
	// VersionsFile is a file outside the workspace that keeps versions and what
	// was read for the next process of the session; empty keeps them in memory.
	// Several processes may share it.
	VersionsFile string
	// Limits; a zero field means its default.
	Limits Limits
}

// Limits that a session may change.
type Limits struct {
	WriteChars int   // content of one write_file or edit_file call, in characters (48,000)
	EditBytes  int64 // a file that edit_file opens, and what it may become (8 MiB)
	WholeBytes int64 // a file that is read or appended to as a whole (64 MiB)
	InBytes    int64 // content of one Import (2 GiB)
}

func (l Limits) withDefaults() Limits {
	if l.WriteChars == 0 {
		l.WriteChars = 48_000
	}
	if l.EditBytes == 0 {
		l.EditBytes = 8 << 20
	}
	if l.WholeBytes == 0 {
		l.WholeBytes = 64 << 20
	}
	if l.InBytes == 0 {
		l.InBytes = 2 << 30
	}
	return l
}

// FS is one workspace. Its methods may be called from many goroutines at once;
// changes happen one after the other.
//
// Methods take a path in the workspace, relative as [Grammar.Parse] gives it or
// absolute as programs write it, and keep its rules. Every error is a
// *tool.Error.
type FS struct {
	opts     Options
	tree     *beneath.Tree
	staging  *beneath.Staging
	versions *versions
	writing  *lock.Mutex // held while a change is made
	watches  watches

	life   sync.RWMutex // shared by every call, taken to close
	closed bool
	tidied bool // under writing
}

// New opens the workspace.
func New(opts *Options) (*FS, error) {
	if opts == nil || opts.Root == nil {
		return nil, tool.Errorf(tool.Internal, "a workspace needs its directory")
	}
	f := &FS{opts: *opts, writing: lock.New()}
	f.opts.Limits = opts.Limits.withDefaults()
	if err := f.open(); err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the workspace can't be opened; make a new session").Because(errors.Join(err, f.Close()))
	}
	return f, nil
}

func (f *FS) open() (err error) {
	if f.tree, err = beneath.New(f.opts.Root, Mount); err != nil {
		return err
	}
	if f.versions, err = newVersions(f.opts.VersionsFile); err != nil {
		return fmt.Errorf("open the versions: %w", err)
	}
	if f.opts.Tmp == nil {
		return nil
	}
	f.staging, err = beneath.NewStaging(f.opts.Tmp, f.opts.Owner, f.opts.Fsync)
	return err
}

// Close waits for the calls that are under way and makes later ones fail with
// kind closed. It may be called twice.
func (f *FS) Close() error {
	f.life.Lock()
	defer f.life.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.watches.close()
	var errs []error
	if f.tree != nil {
		errs = append(errs, f.tree.Close())
	}
	if f.staging != nil {
		errs = append(errs, f.staging.Close())
	}
	if f.versions != nil {
		errs = append(errs, f.versions.close())
	}
	return errors.Join(errs...)
}

// enter begins a call: the workspace stays open until leave.
func (f *FS) enter(ctx context.Context) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, tool.AsError(err)
	}
	f.life.RLock()
	if f.closed {
		f.life.RUnlock()
		return nil, tool.Errorf(tool.Closed, "the session has ended; open a new one")
	}
	f.versions.pull()
	return func() {
		f.versions.push()
		f.shorten()
		f.life.RUnlock()
	}, nil
}

// shortenWait bounds how long a call waits for the lock under which it shortens the
// journal: another will do.
const shortenWait = 50 * time.Millisecond

// shorten keeps the journal short where nothing but reading is done: a program makes
// each look a line.
func (f *FS) shorten() {
	if !f.versions.grown() || f.staging == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), shortenWait)
	defer cancel()
	if unlock, err := f.lock(ctx); err == nil {
		unlock()
	}
}

// reached is the one path of a call, opened.
type reached struct {
	*beneath.Handle
	rel   string
	leave func()
}

// reach begins a call about one path: parse reads it, open opens it. field names
// the parameter in errors. The caller closes what it gets, which ends the call.
func (f *FS) reach(ctx context.Context, text, field string, parse func(string) (string, error), open func(string) (*beneath.Handle, error)) (*reached, error) {
	rel, err := parse(text)
	if err != nil {
		return nil, in(err, field)
	}
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	h, err := patiently(ctx, func() (*beneath.Handle, error) { return open(rel) })
	if err != nil {
		leave()
		return nil, in(fail(err, rel), field)
	}
	return &reached{Handle: h, rel: rel, leave: leave}, nil
}

// leased is how often, and how far apart, a file is opened that a program holds a
// lease on: one that means well lets go within milliseconds, for the others nobody waits.
var leased = retry.Times{Count: 5, Pause: 20 * time.Millisecond}

// patiently opens a file, with some patience for a program that holds a lease on it.
func patiently(ctx context.Context, open func() (*beneath.Handle, error)) (h *beneath.Handle, err error) {
	err = leased.Do(ctx, beneath.Leased, func() (err error) {
		h, err = open()
		return err
	})
	return h, err
}

func (r *reached) close() {
	_ = r.Close()
	r.leave()
}

// enterToChange begins a call that changes something: it is alone until
// it calls what it gets.
func (f *FS) enterToChange(ctx context.Context) (func(), error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		leave()
		return nil, err
	}
	return func() { unlock(); leave() }, nil
}

const lockWait = 5 * time.Second

// lock begins a change; every other one waits, at most 5 s.
func (f *FS) lock(ctx context.Context) (unlock func(), err error) {
	if f.staging == nil {
		return nil, tool.Errorf(tool.Unsupported, "this workspace can only be read")
	}
	wait, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	if f.writing.Lock(wait) != nil {
		if err := ctx.Err(); err != nil {
			return nil, tool.AsError(err)
		}
		return nil, tool.Errorf(tool.Busy, "another call is changing the workspace; retry")
	}
	release := f.writing.Unlock
	if f.opts.Lock != nil {
		outer, err := f.opts.Lock(ctx)
		if err != nil {
			release()
			return nil, tool.AsError(err)
		}
		release = func() { outer(); f.writing.Unlock() }
	}
	f.tidy()
	f.versions.pull()
	return release, nil
}

// tidy shortens the journal where it has grown and clears, once, what a killed process
// left, under the lock. Leftovers cost room only, so they stop no change.
func (f *FS) tidy() {
	if f.versions.grown() {
		f.versions.compact()
	}
	if !f.tidied {
		f.tidied = true
		_ = f.staging.Sweep()
	}
}

// fail is err for an agent, said of the workspace path rel.
func fail(err error, rel string) error {
	if err == nil {
		return nil
	}
	return beneath.Error(err, Any.Display(rel))
}

// in names the parameter that err is about, unless it names one already.
func in(err error, field string) error {
	if err == nil {
		return nil
	}
	e := tool.AsError(err)
	switch e.Kind {
	case tool.Closed, tool.Timeout, tool.Busy, tool.Internal, tool.Unavailable:
		return e
	}
	if e.Field == "" {
		e.Field = field
	}
	return e
}
