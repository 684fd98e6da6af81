package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// Store is a state root: the sessions of one user. Its methods may be called concurrently, also by several processes on
// one root.
type Store struct {
	path                  string
	id                    string
	root, sessions, trash *os.Root

	// step is called at each point at which a crash would leave another state; tests end the process there.
	step func(point string)
	// without lists disk mechanisms not to use.
	without map[DiskWay]bool
	single  bool // see [StoreOptions]
}

// OpenStore opens the state root at a path, and creates it if it is missing; "" means [DefaultRoot]. The directory must
// be the caller's own, not a link, and closed to other users: otherwise the error is permission.
func OpenStore(root string) (*Store, error) {
	if root == "" {
		def, err := DefaultRoot()
		if err != nil {
			return nil, err
		}
		root = def
	}
	path, err := filepath.Abs(root)
	if err != nil {
		return nil, ioError(err, "find the state directory")
	}
	s := &Store{path: path, step: func(string) {}}
	if err := s.open(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) open() (err error) {
	if s.root, err = secureRoot(s.path); err != nil {
		return err
	}
	if s.id, err = rootID(s.root, s.path); err != nil {
		return err
	}
	if s.sessions, err = ensureDir(s.root, sessionsDir); err != nil {
		return err
	}
	s.trash, err = ensureDir(s.root, trashDir)
	return err
}

// ensureDir opens one of our directories, and creates it if it is missing.
func ensureDir(parent *os.Root, name string) (*os.Root, error) {
	err := parent.Mkdir(name, 0o700)
	if err == nil {
		err = parent.Chmod(name, 0o700) // regardless of the umask
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, ioError(err, "make a directory of the state directory")
	}
	dir, err := parent.OpenRoot(name)
	return dir, ioError(err, "open a directory of the state directory")
}

// ID returns the random id of the state root: it never changes and no other root has it.
func (s *Store) ID() string { return s.id }

// Path returns the state root's absolute path on the host.
func (s *Store) Path() string { return s.path }

// Close frees the Store's descriptors. Sessions that are open stay open.
func (s *Store) Close() error {
	var errs []error
	for _, dir := range []*os.Root{s.root, s.sessions, s.trash} {
		if dir != nil {
			errs = append(errs, dir.Close())
		}
	}
	return errors.Join(errs...)
}

// CreateOptions are options for a new session.
type CreateOptions struct {
	// ID is its name, see [CheckID]; "" means a random one that sorts by time.
	ID string
	// Kept sessions stay when nobody has them open; the next sweep removes others.
	Kept bool
	// Owner gets the workspace; nil leaves it to the caller's user.
	Owner *sandbox.Owner
	// TTL and Idle: see [State].
	TTL, Idle time.Duration
	// Disk is the maximum size of the workspace in bytes, and Inodes its maximum number of files, directories and
	// links; 0 means no limit. [Dir.DiskState] reports what enforces them.
	Disk, Inodes int64
	// Settings are kept unchanged with the session.
	Settings json.RawMessage
}

// Create creates an empty session in [StateOpening] and opens it; the caller sets it ready. If several callers create
// the same name at once, one succeeds and the others get exists. After an error nothing of the session is left.
func (s *Store) Create(ctx context.Context, opts *CreateOptions) (*Dir, error) {
	if opts == nil {
		opts = &CreateOptions{}
	}
	o := *opts
	if o.ID == "" {
		o.ID = newID()
	}
	if err := CheckID(o.ID); err != nil {
		return nil, err
	}
	if len(o.Settings) > 0 && !json.Valid(o.Settings) {
		return nil, answer.Errorf(answer.Invalid, "the session's settings are not JSON").In("settings")
	}
	unlock, err := s.guard(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.claimName(o.ID); err != nil {
		return nil, err
	}
	d, err := s.furnish(ctx, o)
	if err != nil {
		if s.single { // only furnish puts files there
			_ = s.emptyFiles(context.WithoutCancel(ctx))
		}
		_ = s.discard(context.WithoutCancel(ctx), sessionsDir+"/"+o.ID, o.ID)
		return nil, ioError(err, "make the session")
	}
	return d, nil
}

// guard keeps sweeps away from incomplete directories: creators hold root.lock shared, and a sweep that looks for
// leftovers of killed creators holds it exclusively.
func (s *Store) guard(ctx context.Context) (unlock func(), err error) {
	lock := flock.New(filepath.Join(s.path, rootLock))
	if err := acquire(ctx, lock.TryRLockContext, "the state directory is being cleaned; try again"); err != nil {
		return nil, ioError(err, "lock the state directory")
	}
	return func() { _ = lock.Unlock() }, nil
}

func (s *Store) claimName(id string) error {
	s.step("create.begin")
	err := s.sessions.Mkdir(id, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return taken(id)
	}
	s.step("create.named")
	if err != nil {
		return ioError(err, "make the session's directory")
	}
	return s.claimSingle(id)
}

// furnish fills a new session's directory. It writes session.json last: without it the directory is not a session.
func (s *Store) furnish(ctx context.Context, o CreateOptions) (_ *Dir, err error) {
	if err := s.sessions.Chmod(o.ID, 0o700); err != nil {
		return nil, err
	}
	d, err := s.attach(ctx, o.ID)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.release()
		}
	}()
	s.step("create.locked")
	pin, disk, err := d.makeFiles(ctx, o)
	if err != nil {
		return nil, err
	}
	s.step("create.furnished")
	now := Now()
	d.state = State{
		Schema: stateSchema, ID: o.ID, Kept: o.Kept, Status: StateOpening, Created: now, LastUsed: now,
		TTL: o.TTL, Idle: o.Idle, Owner: thisProcess(), User: o.Owner, Workspace: pin, Disk: disk, Settings: o.Settings,
	}
	if err := saveState(d.dir, d.state); err != nil {
		return nil, err
	}
	s.step("create.recorded")
	return d, d.openRoots()
}

// Open opens an existing session until the [Dir] is closed. It waits at most 5 s for a session that is being removed.
// If the record or workspace is damaged the error is unavailable; for an unknown name it is not_found.
func (s *Store) Open(ctx context.Context, id string) (*Dir, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	d, err := s.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := d.load(ctx); err != nil {
		_ = d.release()
		return nil, err
	}
	return d, nil
}

// Entry is a session in the result of [Store.List].
type Entry struct {
	ID    string `json:"id"`
	State State  `json:"state"` // only Status is set if the session is lost
	// InUse reports whether somebody has the session open.
	InUse bool `json:"in_use"`
	// Held reports whether only the session's holder has it open.
	Held bool `json:"held"`
	// Problem is the reason why the session can't be used, "" if it can.
	Problem string `json:"problem,omitempty"`
}

// Shown returns the word for the session's state in lists: running if a process has it open, so that its programs may
// run, and stopped if none has; paused and expired; lost if the session can't be used; opening and closing.
func (e Entry) Shown() string {
	if _, over := e.State.Expired(Now()); over && e.State.Kept {
		return "expired"
	}
	switch {
	case e.State.Status != StateReady:
		return string(e.State.Status)
	case e.Held || e.InUse:
		return "running"
	}
	return "stopped"
}

// List returns the sessions by name. It lists an unreadable one as lost.
func (s *Store) List(ctx context.Context) ([]Entry, error) {
	ids, err := names(s.sessions)
	if err != nil {
		return nil, ioError(err, "list the sessions")
	}
	entries := make([]Entry, 0, len(ids))
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if e, ok := s.entry(id); ok {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// entry describes a session; ok is false if it was removed meanwhile.
func (s *Store) entry(id string) (e Entry, ok bool) {
	claim, err := s.tryClaim(id)
	if errors.Is(err, fs.ErrNotExist) {
		return e, false
	}
	if err == nil {
		defer claim.release()
	}
	e = Entry{ID: id, InUse: errors.Is(err, errInUse)}
	e.State, err = s.readState(id)
	if err == nil && !e.State.of(id) {
		err = errors.New("the record is another session's")
	}
	if err != nil {
		e.State = State{ID: id, Status: StateLost}
		e.Problem = "its session.json can't be read: remove the session"
		if answer.KindOf(err) == answer.Unsupported {
			e.Problem = answer.AsError(err).Message
		}
	}
	return e, true
}

func (s *Store) readState(id string) (State, error) {
	dir, err := s.sessions.OpenRoot(id)
	if err != nil {
		return State{}, err
	}
	defer dir.Close()
	return loadState(dir)
}

// names lists the sessions, or the entries of the trash, sorted. It ignores anything else, e.g. lost+found.
func names(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	all = slices.DeleteFunc(all, func(name string) bool { return CheckID(trashedID(name)) != nil })
	slices.Sort(all)
	return all, err
}
