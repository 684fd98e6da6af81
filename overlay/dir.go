package overlay

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/audit"
	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/tool/answer"
)

const (
	workspaceDir = "workspace"
	tmpDir       = "tmp"
	snapshotsDir = "snapshots"
	outputDir    = "output"
	lifeLock     = "life.lock"
	writeLock    = "write.lock"
	stateLock    = "state.lock"
	pauseLock    = "pause.lock"
)

// Dir is an open session. While it is open nobody can delete the session. Its methods may be called concurrently.
type Dir struct {
	store *Store
	id    string
	dir   *os.Root
	life  *flock.Flock
	write *mutex
	guard *mutex // state.lock
	pause *mutex // pause.lock

	mu        sync.Mutex
	state     State
	recorded  fs.FileInfo // of the record from which state was read, nil if it was written since
	workspace *os.Root
	is        fs.FileInfo // of workspace
	tmp       *os.Root
	output    *os.Root
	snapshots *os.Root
	log       *audit.Log
	egress    *audit.Log
	touched   Stamp
	closed    bool

	later beneath.Later // removes replaced workspaces

	imaged bool       // workspace/ and tmp/ are in disk/, where the image is mounted
	shown  sync.Mutex // held while KeepShown runs

	meter  meter
	counts [2]*os.File // workspace and tmp, for the meter
}

// attach opens a session's directory and takes its shared life lock.
func (s *Store) attach(ctx context.Context, id string) (*Dir, error) {
	dir, err := s.openSession(id)
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(s.path, sessionsDir, id, name) }
	d := &Dir{
		store: s, id: id, dir: dir,
		life: flock.New(file(lifeLock)), write: newMutex(file(writeLock)), guard: newMutex(file(stateLock)), pause: newMutex(file(pauseLock)),
		meter: meter{seenAt: seenAt},
	}
	if err := d.takeLife(ctx); err != nil {
		_ = d.release()
		return nil, err
	}
	return d, nil
}

// SessionFile returns the path of a file in a session's directory, in the state root at a path; "" means [DefaultRoot].
func SessionFile(root, id, name string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	if root == "" {
		def, err := DefaultRoot()
		if err != nil {
			return "", err
		}
		root = def
	}
	return filepath.Join(root, sessionsDir, id, name), nil
}

// openSession opens sessions/ID, which must be a directory and not a link.
func (s *Store) openSession(id string) (*os.Root, error) {
	info, err := s.sessions.Lstat(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(id)
	}
	if err == nil && !info.IsDir() {
		return nil, lost(id, errors.New("not a directory"))
	}
	if err != nil {
		return nil, ioError(err, "look at the session")
	}
	dir, err := s.sessions.OpenRoot(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notFound(id)
	}
	return dir, ioError(err, "open the session")
}

// takeLife takes the shared life lock. If nobody else holds it, takeLife first clears the leftovers of killed clients
// in tmp/. If a remover has renamed the directory between opening and locking it, the session is gone.
func (d *Dir) takeLife(ctx context.Context) error {
	if alone, _ := d.life.TryLock(); alone {
		if d.isCurrent() {
			d.clearTmp()
		}
		_ = d.life.Unlock()
	}
	err := acquire(ctx, d.life.TryRLockContext, "the session is being removed or replaced; try again")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !d.isCurrent() {
		return notFound(d.id)
	}
	return ioError(err, "lock the session")
}

// isCurrent reports whether this directory is still the session of its name.
func (d *Dir) isCurrent() bool {
	now, err := d.store.sessions.Lstat(d.id)
	if err != nil {
		return false
	}
	ours, err := d.dir.Stat(".")
	return err == nil && os.SameFile(now, ours)
}

// load reads the session's state and opens its directories.
func (d *Dir) load(ctx context.Context) error {
	state, err := loadState(d.dir)
	switch {
	case answer.KindOf(err) == answer.Unsupported:
		return err
	case err != nil:
		return lost(d.id, err)
	case !state.of(d.id):
		return lost(d.id, errors.New("the record is another session's"))
	case state.Status == StateClosing:
		return answer.Errorf(answer.Closed, "session %q is being removed; remove it again to finish that", d.id).In("session")
	}
	d.state, d.recorded = state, nil
	d.imaged = state.Disk != nil && state.Disk.Way == DiskImage
	if err := d.mountDisk(ctx, state.Kept); err != nil {
		return err
	}
	if err := d.openRoots(); err != nil {
		return err
	}
	if state.Former != nil {
		d.finishResize(ctx)
	}
	return nil
}

func lost(id string, cause error) error {
	return answer.Errorf(answer.Unavailable, "session %q is lost: its record can't be read; remove it (with its files) and create it again", id).In("session").Because(cause)
}

// ID returns the session's name.
func (d *Dir) ID() string { return d.id }

// WorkspacePath returns the workspace's absolute path on the host.
func (d *Dir) WorkspacePath() string {
	if d.store.single {
		return d.store.singlePath(workspaceDir)
	}
	return d.hostPath(d.at(workspaceDir))
}

// SnapshotsPath returns the absolute host path of the directory for snapshots.
func (d *Dir) SnapshotsPath() string { return d.hostPath(snapshotsDir) }

func (d *Dir) hostPath(name string) string {
	return filepath.Join(d.store.path, sessionsDir, d.id, name)
}

// Workspace returns the directory that programs see, the same until [Dir.Remake] or [Dir.Reset]. It is closed with the
// Dir, like the others.
func (d *Dir) Workspace() *os.Root { return d.root(&d.workspace) }

// Tmp returns a directory on the workspace's file system that programs can't see, for files that are written there and
// renamed into place. It is emptied when a session is opened that nobody else has open.
func (d *Dir) Tmp() *os.Root { return d.root(&d.tmp) }

// Output returns the directory for the kept output of programs.
func (d *Dir) Output() *os.Root { return d.root(&d.output) }

// Snapshots returns the directory for package snapshot.
func (d *Dir) Snapshots() *os.Root { return d.root(&d.snapshots) }

func (d *Dir) root(field **os.Root) *os.Root {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *field
}

// Lock takes the session's write lock, which the file tools and restores hold during every change. It waits at most 5
// s, or until ctx ends; after 5 s the error is busy. Goroutines that share a Dir get it in order. unlock may be called
// twice.
func (d *Dir) Lock(ctx context.Context) (unlock func(), err error) {
	unlock, err = d.write.lock(ctx, "another call has been changing files of this session for 5 s; try again")
	return unlock, ioError(err, "lock the workspace")
}

// LockPause takes the lock for pausing and resuming the session's programs. The holder that pauses them keeps it until
// they run again. It waits as Lock does.
func (d *Dir) LockPause(ctx context.Context) (unlock func(), err error) {
	unlock, err = d.pause.lock(ctx, "another process has paused this session's programs for 5 s, e.g. for a snapshot; try again")
	return unlock, ioError(err, "lock the session's programs")
}

// State returns the session's record as this Dir last read or wrote it.
func (d *Dir) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// Reload reads the record again, with what other clients changed.
func (d *Dir) Reload() (State, error) {
	info, _ := d.dir.Stat(stateFile) // first, so that a file that is replaced meanwhile is read again
	state, err := loadState(d.dir)
	if err != nil {
		return State{}, lost(d.id, err)
	}
	state.of(d.id)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state, d.recorded = state, info
	return state, nil
}

// Current returns the session's current record. It calls stat, and reads the file only if another client has replaced
// it. If that fails it returns the last record read.
func (d *Dir) Current() State {
	info, err := d.dir.Stat(stateFile)
	d.mu.Lock()
	state, recorded := d.state, d.recorded
	d.mu.Unlock()
	if err != nil || recorded != nil && os.SameFile(info, recorded) && info.ModTime().Equal(recorded.ModTime()) {
		return state
	}
	if now, err := d.Reload(); err == nil {
		return now
	}
	return state
}

// Update changes the record: change gets the record on disk, and its result replaces that atomically. The changes of
// all clients are serialized. Update returns an error of change unchanged, and then writes nothing. It doesn't write an
// unchanged record either.
func (d *Dir) Update(ctx context.Context, change func(*State) error) error {
	return d.update(ctx, change, true)
}

// update waits until the record of a kept session is on disk if durable is set.
func (d *Dir) update(ctx context.Context, change func(*State) error, durable bool) error {
	unlock, err := d.guard.lock(ctx, "the session's record is being written by another process; try again")
	if err != nil {
		return ioError(err, "lock the session's record")
	}
	defer unlock()
	return d.rewrite(change, durable)
}

// rewrite is update for a caller that holds the record's lock.
func (d *Dir) rewrite(change func(*State) error, durable bool) error {
	state, err := d.Reload()
	if err != nil {
		return err
	}
	before, err := encodeState(state)
	if err != nil {
		return err
	}
	if err := change(&state); err != nil {
		return err
	}
	after, err := encodeState(state)
	if err == nil && !bytes.Equal(before, after) {
		err = replaceState(d.dir, durable && state.Kept, after)
	}
	if err != nil {
		return ioError(err, "write the session's record")
	}
	d.mu.Lock()
	d.state, d.recorded = state, nil
	d.mu.Unlock()
	return nil
}

// SetState writes the session's state.
func (d *Dir) SetState(status SessionState) error {
	return d.Update(context.Background(), func(s *State) error { s.Status = status; return nil })
}

// Touch records that the session is in use. It is usually free: it writes the record once in a tenth of the idle time,
// and at most every 30 s. For a session without an idle time it writes nothing before [Dir.Close].
func (d *Dir) Touch() {
	now := Now()
	d.mu.Lock()
	every := min(d.state.Idle/10, 30*time.Second)
	due := every > 0 && (d.touched.BootID == "" || now.Boot-d.touched.Boot >= every)
	if due {
		d.touched = now
	}
	d.mu.Unlock()
	if due {
		d.used(now)
	}
}

func (d *Dir) used(now Stamp) {
	// If the write fails the record keeps its older time, which can only end an idle kept session early. The rename
	// isn't synced: after a crash of the machine there is the old record or the new one.
	_ = d.update(context.Background(), func(s *State) error { s.LastUsed = now; return nil }, false)
}

// Close ends this client's use of the session; a second Close does nothing. An
// ephemeral session without another client may be swept from now on.
func (d *Dir) Close() error {
	d.mu.Lock()
	done, kept := d.closed, d.state.Kept
	d.closed = true
	d.mu.Unlock()
	if done {
		return nil
	}
	if kept {
		d.used(Now())
	}
	return d.release()
}

func (d *Dir) release() error {
	d.later.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, root := range []*os.Root{d.workspace, d.tmp, d.output, d.snapshots} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	for _, f := range d.counts {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if d.egress != nil {
		errs = append(errs, d.egress.Close())
	}
	d.egress = nil
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	d.log = nil
	errs = append(errs, d.life.Unlock())
	d.unmountAlone()
	return errors.Join(append(errs, d.dir.Close())...)
}
