// Package vfs gives agents and Go callers access to the files of a workspace: the grammar of paths,
// the file tools (ls, read_file, write_file, edit_file, glob, grep, rm) and versions of files.
//
// It works on the workspace's directory from the host, so it needs no container. Programs may change
// the same directory at the same time, with bad intentions: all access goes through package beneath,
// which can't leave it. The package knows nothing of sessions, mounts or snapshots.
package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Mount is the path of the workspace for programs.
const Mount = "/workspace"

// Options configure an FS. Only Root is required.
type Options struct {
	// Root is the workspace. The caller closes it after the FS.
	Root *os.Root
	// Tmp is a directory on the same file system that programs can't see. Files are created there
	// and renamed into place. The caller closes it. Without it the workspace is read-only:
	// changes are unsupported.
	Tmp *os.Root
	// Owner is the owner of new files; nil means the user of this process.
	Owner *sandbox.Owner
	// Lock locks out other processes for each change; nil means no lock. Calls of one FS always
	// exclude each other.
	Lock func(context.Context) (unlock func(), err error)
	// Paths is the grammar of paths that the tools accept and show unescaped; default [ASCII].
	// Import, Export and Watch always use [Any].
	Paths Grammar
	// ReadBeforeWrite refuses, as a conflict, to change an existing file that the client ([tool.Client]) has not read,
	// or that a program or another client has changed since.
	ReadBeforeWrite bool
	// Fsync makes each change durable before the call returns.
	Fsync bool
	// VersionsFile is a file outside the workspace that keeps versions, and which files were
	// read, for the next process of the session; "" keeps them in memory. Several processes may
	// share it.
	VersionsFile string
	// Limits bound calls; a zero field means its default.
	Limits Limits
}

// Limits that a session may change.
type Limits struct {
	WriteChars int   // content of one write_file or edit_file call, in characters (48,000)
	EditBytes  int64 // a file before and after edit_file (8 MiB)
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

// FS is one workspace. Its methods may be called from many goroutines at once; changes happen one
// after the other.
//
// Methods take a path in the workspace, either relative as [Grammar.Parse] returns it or absolute
// as programs write it, and follow its rules. Every error is a *tool.Error.
type FS struct {
	opts     Options
	tree     *beneath.Tree
	staging  *beneath.Staging
	versions *versions
	writing  *lock.Mutex // held while a change is made
	watches  watches
	inPlace  func() bool // may be nil

	life   sync.RWMutex // shared by every call, taken to close
	closed bool
	tidied bool // under writing
}

// New opens the workspace.
func New(opts *Options) (*FS, error) {
	if opts == nil || opts.Root == nil {
		return nil, tool.Errorf(tool.Internal, "Options.Root is missing; it is required")
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

// Close waits for running calls. Later calls return an error of kind closed. It may be called twice.
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

// shortenWait bounds the wait for the lock to shorten the journal, since any other call can do it.
const shortenWait = 50 * time.Millisecond

// shorten keeps the journal short in a session that only reads: programs can cause a line for each
// reading.
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

// reached is the open path of a call.
type reached struct {
	*beneath.Handle
	rel   string
	leave func()
}

// reach begins a call about one path, which it parses with parse and opens with open. field names
// the parameter in errors. The caller closes the result, which ends the call.
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
		return nil, in(elsewhere(fail(err, rel), text), field)
	}
	return &reached{Handle: h, rel: rel, leave: leave}, nil
}

// elsewhere adds to the error about a missing file that its path is one of the host, of the system or of a home directory,
// where the file tools don't look.
func elsewhere(err error, text string) error {
	e := (*tool.Error)(nil)
	isOther := strings.HasPrefix(text, "~") || strings.HasPrefix(text, "file:") ||
		strings.HasPrefix(text, "/") && strings.Count(text, "/") > 1 && text != "/workspace" && !strings.HasPrefix(text, "/workspace/")
	if !isOther || !errors.As(err, &e) || e.Kind != tool.NotFound {
		return err
	}
	other := *e
	other.Message = "that path does not exist below /workspace, where paths begin: the file tools reach no other files; use a program for files elsewhere"
	return &other
}

// leased bounds the attempts to open a file on which a program holds a lease. A well-behaved
// program releases it within milliseconds.
var leased = retry.Times{Count: 5, Pause: 20 * time.Millisecond}

// patiently opens a file, and retries while a program holds a lease on it.
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

// enterToChange begins a call that changes something. It excludes other changes until the caller
// calls the returned function.
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

var lockWait = patience.For(5 * time.Second)

// lock begins a change; every other one waits, at most 5 s.
func (f *FS) lock(ctx context.Context) (unlock func(), err error) {
	if f.staging == nil {
		return nil, tool.Errorf(tool.Unsupported, "this workspace is read-only")
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

// tidy shortens a journal that has grown and, once, removes the leftovers of a killed process. The
// caller holds the lock. Leftovers only cost room, so an error fails no change.
func (f *FS) tidy() {
	if f.versions.grown() {
		f.versions.compact()
	}
	if !f.tidied {
		f.tidied = true
		_ = f.staging.Sweep()
	}
}

// fail returns err for an agent, about the workspace path rel.
func fail(err error, rel string) error {
	if err == nil {
		return nil
	}
	return beneath.Error(err, Any.Display(rel))
}

// in sets the parameter of err, unless it has one.
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
