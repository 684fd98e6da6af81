package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Manager opens, finds and removes the sessions of one state root. Its methods
// may be called from many goroutines, and many processes may share a state
// root, each with a Manager of its own.
type Manager struct {
	opts    Options
	log     *slog.Logger
	store   *overlay.Store
	backend sandbox.Backend
	owned   bool // the backend is ours to close

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	pool   *pool // nil without one

	sweepOnce     sync.Once // of sessions
	sweepSandOnce sync.Once // of containers

	mu     sync.Mutex
	open   map[*Session]struct{}
	opened int64        // handles on sessions, ever
	wasm   *wasm.Engine // nil before the first session
	closed bool
}

// NewManager opens the state root. Podman isn't looked for until a session runs
// its first program. Close the Manager when done.
func NewManager(ctx context.Context, opts *Options) (*Manager, error) {
	m := &Manager{open: map[*Session]struct{}{}}
	if opts != nil {
		m.opts = *opts
	}
	m.log = m.opts.Logger
	if m.log == nil {
		m.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if err := m.openStore(); err != nil {
		return nil, err
	}
	m.backend = m.opts.Backend
	if m.backend == nil {
		if err := m.findPodman(ctx); err != nil {
			return nil, err
		}
	}
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.tasks.Go(m.keepSwept)
	if m.opts.Pool.Min > 0 {
		var err error
		if m.pool, err = newPool(m, m.opts.Pool); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

func (m *Manager) openStore() error {
	root := m.opts.CacheDir
	if root == "" {
		def, err := overlay.DefaultRoot()
		if err != nil {
			return err
		}
		root = def
	}
	store, err := overlay.OpenStore(root)
	if err != nil {
		return err
	}
	m.store = store
	return nil
}

func (m *Manager) findPodman(ctx context.Context) error {
	opts := m.opts.Podman
	opts.Root, opts.Logger = m.store.ID(), m.log
	backend, err := podman.New(ctx, &opts)
	if err != nil {
		return toolerr.Of(err)
	}
	m.backend, m.owned = backend, true
	return nil
}

// Backend is what the sessions' sandboxes are made by.
func (m *Manager) Backend() sandbox.Backend { return m.backend }

// Open makes a session: its directory with the mounts copied in is there when
// Open returns, its container comes with the first program. A name that is
// taken is exists. On any error nothing of it is left. nil options work.
func (m *Manager) Open(ctx context.Context, opts *SessionOptions) (*Session, error) {
	if opts != nil {
		if err := checkSecrets(opts.Secrets); err != nil {
			return nil, err
		}
	}
	return m.openWith(ctx, opts, m.copyMounts)
}

// populate fills the workspace of a session that is being made.
type populate func(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error

func (m *Manager) openWith(ctx context.Context, opts *SessionOptions, files populate) (*Session, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m.sweepOnce.Do(func() { m.sweep(ctx) })
	settings, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	item := m.pool.take(o)
	if item == nil {
		dir, err := m.createDir(ctx, o, settings)
		if err != nil {
			return nil, err
		}
		item = &pooled{dir: dir}
	}
	o.Name = item.dir.ID()
	s, err := m.fill(ctx, item, o, files)
	if err != nil {
		m.discard(item)
		return nil, err
	}
	if err := m.handOver(ctx, s, o.Secrets); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropGrace)
		defer cancel()
		return nil, errors.Join(err, s.end(end, false), m.Remove(end, s.ID()))
	}
	return s, nil
}

// handOver gives the holder of a new session the secrets that stand in no file.
func (m *Manager) handOver(ctx context.Context, s *Session, all map[string]Secret) error {
	r, held := s.host.(*remote)
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(_ string, s Secret) bool { return s.Value == nil })
	if !held || len(all) == 0 {
		return nil
	}
	return r.setSecrets(ctx, all)
}

func (m *Manager) createDir(ctx context.Context, o SessionOptions, settings json.RawMessage) (*overlay.Dir, error) {
	owner, err := m.owner(ctx, o)
	if err != nil {
		return nil, err
	}
	return m.store.Create(ctx, &overlay.CreateOptions{
		ID: o.Name, Kept: o.Kept, Owner: &owner, TTL: o.TTL, Idle: o.Idle, Disk: o.Limits.Disk, Inodes: o.Limits.Inodes, Settings: settings,
	})
}

// fill gives a new session its files and makes it ready.
func (m *Manager) fill(ctx context.Context, item *pooled, o SessionOptions, files populate) (*Session, error) {
	if err := files(ctx, item.dir, &o); err != nil {
		return nil, err
	}
	if err := item.dir.Room(ctx); err != nil {
		return nil, err
	}
	settings, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	err = item.dir.Update(ctx, func(s *overlay.State) error {
		s.Status, s.Settings = overlay.StateReady, settings
		return nil
	})
	if err != nil {
		return nil, err
	}
	return m.sessionOf(item, o, len(m.opts.Holder) > 0)
}

// owner is the host user of the workspace's files. Files need no Podman: where
// it can't be asked the owner is what it would most likely say.
func (m *Manager) owner(ctx context.Context, o SessionOptions) (overlay.Owner, error) {
	if o.UserNS == usernsAuto {
		return m.ownRange(ctx)
	}
	owner, err := m.backend.Owner(ctx)
	if err != nil {
		m.log.Info("the service can't be asked for the files' owner", "error", err)
	}
	return overlay.Owner(owner), nil
}

// ownRange is the owner of files of a session whose IDs no other session has.
func (m *Manager) ownRange(ctx context.Context) (overlay.Owner, error) {
	ranger, ok := m.backend.(sandbox.Ranger)
	if !ok {
		return overlay.Owner{}, tool.Errorf(tool.Unsupported, "this backend has no user namespaces").In("userns")
	}
	all, err := m.store.List(ctx)
	if err != nil {
		return overlay.Owner{}, err
	}
	var taken []sandbox.Owner
	for _, e := range all {
		if u := e.State.User; u != nil {
			taken = append(taken, sandbox.Owner{UID: u.UID, GID: u.GID})
		}
	}
	owner, err := ranger.OwnRange(ctx, taken)
	return overlay.Owner(owner), toolerr.Of(err)
}

// copyMounts copies the mounts in and notes where each went.
func (m *Manager) copyMounts(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error {
	if len(o.Mounts) == 0 {
		return nil
	}
	user := dir.State().User
	report, err := hostmount.Copy(ctx, o.Mounts, &hostmount.Options{
		AllowedRoots: slices.Concat(m.opts.AllowedRoots, o.AllowedRoots), Dest: dir.Workspace(), Staging: dir.Tmp(),
		Owner: &hostmount.Owner{UID: user.UID, GID: user.GID}, Progress: o.OnMount,
	})
	if err != nil {
		return err
	}
	o.Mounts = slices.Clone(o.Mounts)
	for i, done := range report.Mounts {
		o.Mounts[i].MountPath = cmp.Or(done.MountPath, ".")
	}
	if o.OnMounted != nil {
		o.OnMounted(report)
	}
	return nil
}

// Attach opens a session that exists: a kept one that another process made, or
// an ephemeral one of this process. An unknown name is not_found.
func (m *Manager) Attach(ctx context.Context, name string) (*Session, error) {
	return m.attach(ctx, name, len(m.opts.Holder) > 0)
}

func (m *Manager) attachLocal(ctx context.Context, name string) (*Session, error) {
	return m.attach(ctx, name, false)
}

func (m *Manager) attach(ctx context.Context, name string, held bool) (*Session, error) {
	dir, err := m.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := m.openDir(dir, held)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return s, nil
}

func (m *Manager) openDir(dir *overlay.Dir, held bool) (*Session, error) {
	var o SessionOptions
	state := dir.State()
	if err := json.Unmarshal(state.Settings, &o); err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the settings of session %s can't be read; remove it with: wisbox session rm %s", dir.ID(), dir.ID()).Because(err)
	}
	if reason, expired := state.Expired(overlay.Now()); expired && state.Kept {
		return nil, tool.Errorf(tool.Closed, "session %s has ended: %s; make another one", dir.ID(), reason)
	}
	o.Name, o.Kept = dir.ID(), state.Kept
	return m.sessionOf(&pooled{dir: dir}, o, held)
}

func (m *Manager) sessionOf(item *pooled, o SessionOptions, held bool) (*Session, error) {
	files, err := newFiles(item.dir, o)
	if err != nil {
		return nil, err
	}
	h, err := m.hostOf(item, o, files, held && o.Kept)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	return m.newSession(item.dir, o, files, h)
}

func (m *Manager) hostOf(item *pooled, o SessionOptions, files *vfs.FS, held bool) (host, error) {
	if held {
		return m.newRemote(item.dir, o), nil
	}
	return m.newLocal(item, o, files)
}

// Remove ends a session by name: its holder, its container, then its files. It
// waits at most 5 s for clients to leave, then it is busy. An unknown name is
// not_found.
func (m *Manager) Remove(ctx context.Context, name string) error {
	m.stopHolder(ctx, name)
	return m.store.RemoveWith(ctx, name, m.removeSandbox)
}

// removeSandbox removes a session's container. A Podman that can't be reached
// doesn't keep the files: the container goes with a later sweep.
func (m *Manager) removeSandbox(ctx context.Context, name string) error {
	err := m.backend.Remove(ctx, name)
	if errors.Is(err, sandbox.ErrUnavailable) {
		m.log.Warn("the container can't be removed now; a later start of wisbox does it", "session", name, "error", err)
		return nil
	}
	return toolerr.Of(err)
}

// List tells what sessions the state root holds, those that are lost too.
func (m *Manager) List(ctx context.Context) ([]overlay.Entry, error) {
	all, err := m.store.List(ctx)
	for i, e := range all {
		if e.InUse && onlyHeld(filepath.Join(m.store.Path(), "sessions", e.ID)) {
			all[i].InUse, all[i].Held = false, true
		}
	}
	return all, err
}

// SessionImages tells which image each kept session was created with, by the
// session's name: none of its programs can run without it.
func (m *Manager) SessionImages(ctx context.Context) (map[string]string, error) {
	all, err := m.store.List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, e := range all {
		if e.Problem != "" || len(e.State.Settings) == 0 {
			continue // lost: no program runs in it
		}
		o, err := settingsOf(e.State.Settings)
		if err != nil {
			return nil, err
		}
		found[e.ID] = o.Image
	}
	return found, nil
}

// Stats are what a Manager has open and has done.
type Stats struct {
	Sessions int   // handles on sessions that are open
	Opened   int64 // and that were ever opened or attached
	Pool     PoolStats
}

// PoolStats are those of the pool, all 0 without one.
type PoolStats struct {
	Ready, Making int   // containers now
	Taken, Missed int64 // sessions that found one, and that had to make theirs
}

// Stats may be called at any time.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Sessions: len(m.open), Opened: m.opened, Pool: m.pool.stats()}
}

// Close closes the sessions that this Manager opened and frees the rest.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	sessions := make([]*Session, 0, len(m.open))
	for s := range m.open {
		sessions = append(sessions, s)
	}
	m.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.Close(context.Background()))
	}
	m.cancel()
	m.tasks.Wait()
	if m.wasm != nil {
		errs = append(errs, m.wasm.Close())
	}
	if m.owned {
		errs = append(errs, m.backend.Close())
	}
	return errors.Join(append(errs, m.store.Close())...)
}

func (m *Manager) forget(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.open, s)
}
