package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// here is the place for sessions on this machine: directories below the state root, containers of
// the backend, and a holder for each kept session.
type here struct {
	opts    *Options
	log     *slog.Logger
	tracer  trace.Tracer
	meter   Meter // may be nil
	store   *overlay.Store
	kept    *templates.Store // one for all, because it caches what it has read
	backend sandbox.Backend
	owned   bool // the backend is ours to close
	holders hold.Root

	ctx   context.Context // ends with the Manager
	tasks sync.WaitGroup
	pool  *pool.Pool[*pooled] // may be nil
	ready SessionOptions      // the options of the pool's containers

	wasm func() (*wasm.Engine, error) // the Manager's

	pulling *lock.Mutex // held during the pull of an image

	sweepOnce     sync.Once // of sessions
	sweepSandOnce sync.Once // of containers
}

// pooled is a directory and, from the pool, a running sandbox for it.
type pooled struct {
	dir *overlay.Dir
	box *box.Box
}

func newHere(ctx context.Context, opts *Options, log *slog.Logger, tracer trace.Tracer) (_ *here, err error) {
	h := &here{opts: opts, log: log, tracer: tracer, meter: opts.Meter, ctx: ctx, backend: opts.Backend, pulling: lock.New()}
	var cleanup undo.Steps
	defer cleanup.Run()
	if h.store, err = openStore(opts.CacheDir, opts.Single); err != nil {
		return nil, err
	}
	cleanup.Close(h.store)
	h.kept = templates.Open(filepath.Join(h.store.Path(), "templates"), log)
	if h.backend == nil {
		if err := h.findPodman(ctx); err != nil {
			return nil, err
		}
		cleanup.Close(h.backend)
	}
	h.holders = hold.Root{CacheDir: h.store.Path(), Command: opts.Holder}
	if opts.Pool.Min > 0 {
		if err := h.openPool(opts.Pool); err != nil {
			return nil, err
		}
	}
	h.tasks.Go(h.keepSwept)
	cleanup.Keep()
	return h, nil
}

func openStore(root string, single bool) (*overlay.Store, error) {
	if root == "" {
		def, err := overlay.DefaultRoot()
		if err != nil {
			return nil, err
		}
		root = def
	}
	return overlay.OpenStoreWith(root, &overlay.StoreOptions{Single: single})
}

func (h *here) findPodman(ctx context.Context) error {
	opts := h.opts.Podman
	opts.Root, opts.StateDir, opts.Logger = h.store.ID(), h.store.Path(), h.log
	backend, err := podman.New(ctx, &opts)
	if err != nil {
		return toolerr.Of(err)
	}
	h.backend, h.owned = backend, true
	return nil
}

func (h *here) close() error {
	h.pool.Close()
	h.tasks.Wait()
	var errs []error
	if h.owned {
		errs = append(errs, h.backend.Close())
	}
	return errors.Join(append(errs, h.store.Close())...)
}

// open creates a session whose container is created with its first program.
func (h *here) open(ctx context.Context, given SessionOptions) (*opened, error) {
	if given.Template != "" {
		return h.openFrom(ctx, given)
	}
	o, err := given.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := h.pullImage(ctx, &o); err != nil {
		return nil, err
	}
	return h.openWith(ctx, o, h.copyAllMounts)
}

func (h *here) openWith(ctx context.Context, given SessionOptions, files populate) (*opened, error) {
	o, err := given.withDefaults()
	if err != nil {
		return nil, err
	}
	made, err := h.create(ctx, []SessionOptions{o}, files)
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// populate fills the workspaces of sessions that are being created.
type populate func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error

// create creates sessions, all or none: files fills their workspaces.
func (h *here) create(ctx context.Context, all []SessionOptions, files populate) ([]*opened, error) {
	h.sweepOnce.Do(func() { h.sweep(ctx) })
	var cleanup undo.Steps
	defer cleanup.Run()
	all = slices.Clone(all)
	items := make([]*pooled, len(all))
	dirs := make([]*overlay.Dir, len(all))
	for i := range all {
		item, err := h.item(ctx, all[i])
		if err != nil {
			return nil, err
		}
		cleanup.Add(func() { h.discard(item) })
		items[i], dirs[i], all[i].Name = item, item.dir, item.dir.ID()
	}
	if err := files(ctx, dirs, all); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if err := cmp.Or(dir.Covered(), dir.Stored()); err != nil {
			return nil, err
		}
	}
	made := make([]*opened, len(all))
	for i, item := range items {
		var err error
		if made[i], err = h.complete(ctx, item, all[i]); err != nil {
			return nil, err
		}
		cleanup.Add(func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DropGrace)
			defer cancel()
			_ = errors.Join(made[i].exec.close(end, false), made[i].at.(*folder).files.Load().Close())
		})
	}
	for _, o := range made {
		if err := h.handOver(ctx, o); err != nil {
			return nil, err
		}
	}
	cleanup.Keep()
	return made, nil
}

// item returns the directory of a new session, from the pool if one fits.
func (h *here) item(ctx context.Context, o SessionOptions) (*pooled, error) {
	if h.fits(o) {
		if item, ok := h.pool.Take(); ok {
			return item, nil
		}
	}
	dir, err := h.createDir(ctx, o)
	if err != nil {
		return nil, err
	}
	return &pooled{dir: dir}, nil
}

func (h *here) createDir(ctx context.Context, o SessionOptions) (*overlay.Dir, error) {
	settings, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	owner, err := h.owner(ctx, o)
	if err != nil {
		return nil, err
	}
	return h.store.Create(ctx, &overlay.CreateOptions{
		ID: o.Name, Kept: o.Kept, Owner: &owner, TTL: o.TTL, Idle: o.Idle, Disk: o.Limits.Disk, Inodes: o.Limits.Inodes, Settings: settings,
	})
}

// complete prepares a session that has its files.
func (h *here) complete(ctx context.Context, item *pooled, o SessionOptions) (*opened, error) {
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
	return h.opened(item, o, h.holds(o))
}

// holds reports whether another process does the session's work.
func (h *here) holds(o SessionOptions) bool { return o.Kept && len(h.opts.Holder) > 0 }

// handOver gives the holder of a new session the secrets without a file.
func (h *here) handOver(ctx context.Context, o *opened) error {
	values := inner(o.opts.Secrets)
	maps.DeleteFunc(values, func(_ string, s box.Secret) bool { return s.Value == nil })
	if !h.holds(o.opts) || len(values) == 0 {
		return nil
	}
	_, _, err := o.exec.do(ctx, newCall(), secretsOp{Secrets: values}, hold.Streams{})
	return err
}

func (h *here) attach(ctx context.Context, name string) (*opened, error) {
	return h.find(ctx, name, h.holds)
}

// find opens a session; held decides where its work is done.
func (h *here) find(ctx context.Context, name string, held func(SessionOptions) bool) (*opened, error) {
	dir, err := h.store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	o, err := optionsOf(dir)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	out, err := h.opened(&pooled{dir: dir}, o, held(o))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return out, nil
}

// optionsOf returns the options of a complete session whose time isn't over.
func optionsOf(dir *overlay.Dir) (SessionOptions, error) {
	var o SessionOptions
	state := dir.State()
	if state.Status == overlay.StateOpening {
		return o, tool.Errorf(tool.Unavailable, "session %s is incomplete: it is still being created, or its creation was interrupted; wait, or remove it with: wisbox rm %s", dir.ID(), dir.ID())
	}
	if err := json.Unmarshal(state.Settings, &o); err != nil {
		return o, tool.Errorf(tool.Unavailable, "the settings of session %s can't be read; remove it with: wisbox rm %s", dir.ID(), dir.ID()).Because(err)
	}
	if reason, expired := state.Expired(overlay.Now()); expired && state.Kept {
		return o, tool.Errorf(tool.Closed, "session %s has ended: %s; create another one", dir.ID(), reason)
	}
	o.Name, o.Kept = dir.ID(), state.Kept
	return o, nil
}

// opened opens the session's files for the tools, and its executor.
func (h *here) opened(item *pooled, o SessionOptions, elsewhere bool) (*opened, error) {
	files, err := newFiles(item.dir, o)
	if err != nil {
		return nil, err
	}
	out := &opened{at: newFolder(h, item.dir, o, files), opts: o}
	if elsewhere {
		out.exec = h.newHeld(item.dir, o)
		return out, nil
	}
	l, err := h.newLocal(item, o, files)
	if err != nil {
		return nil, errors.Join(err, files.Close())
	}
	out.exec = l
	return out, nil
}

// folder is the site of a session on this machine: its directory.
type folder struct {
	*overlay.Dir
	h     *here
	opts  SessionOptions
	files atomic.Pointer[vfs.FS] // replaced by a reset
}

func newFolder(h *here, dir *overlay.Dir, o SessionOptions, files *vfs.FS) *folder {
	f := &folder{Dir: dir, h: h, opts: o}
	f.files.Store(files)
	return f
}

func (f *folder) Files() fs.FS { return f.files.Load().FS() }

func (f *folder) Watch(ctx context.Context, path string) (<-chan vfs.Change, error) {
	return f.files.Load().Watch(ctx, path)
}

func (f *folder) Digest() *digest.Digester { return f.h.newDigest(f.Dir, f.opts, f.files.Load()) }

func (f *folder) created() overlay.Stamp { return f.State().Created }

func (f *folder) renew(context.Context) error {
	f.Touch()
	return nil
}

func (f *folder) fill(ctx context.Context, mounts io.Reader) error {
	if err := wholeImport(ctx, f.files.Load(), mounts); err != nil {
		return err
	}
	return keepGiven(ctx, f.Dir, f.opts)
}

func (f *folder) look(_ context.Context, l far.Look, w io.Writer) ([]far.File, error) {
	return l.Answer(f.Files(), w)
}

func (f *folder) awake() error { return awake(f.Dir) }

func (f *folder) renewed(files any) error {
	if fresh, ok := files.(*vfs.FS); ok {
		return f.files.Swap(fresh).Close()
	}
	return nil
}

func (f *folder) Close() error { return errors.Join(f.files.Load().Close(), f.Dir.Close()) }

func (h *here) stop(ctx context.Context, name string) error {
	dir, err := h.store.Open(ctx, name)
	if err != nil {
		return err
	}
	defer h.holders.Exclude(ctx, name)()
	if err := errors.Join(ctx.Err(), h.endPause(ctx, dir), dir.Close()); err != nil {
		return err
	}
	return h.store.Alone(name, func(overlay.State) error { // a killed holder, or a client without one, may have left its container
		return h.removeSandbox(ctx, name)
	})
}

// endPause ends the frozen programs of a paused session, even one that another process has open: a
// resume there waits for the lock. If the container can't be removed, the session stays paused.
func (h *here) endPause(ctx context.Context, dir *overlay.Dir) error {
	if awake(dir) == nil {
		return nil
	}
	unlock, err := dir.LockPause(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if awake(dir) == nil {
		return nil
	}
	if err := toolerr.Of(h.backend.Remove(ctx, dir.ID())); err != nil {
		return err
	}
	return dir.Update(ctx, func(s *overlay.State) error { s.Resumed(overlay.Now()); return nil })
}

func (h *here) readLog(_ context.Context, name string, connections bool, each func([]byte) error) error {
	if connections {
		return h.store.EgressLog(name, each)
	}
	return h.store.Log(name, each)
}

func (h *here) rename(ctx context.Context, name, to string) error {
	if _, err := os.Lstat(filepath.Join(h.store.Path(), "serve", "sandboxes", name+".json")); err == nil && overlay.CheckID(name) == nil {
		return tool.Errorf(tool.Unsupported, "session %s is a sandbox of wisbox serve, whose client knows it by this name", name).In("session")
	}
	began := time.Now()
	if err := h.store.Rename(ctx, name, to, h.hasSandbox); err != nil {
		return err
	}
	event := Event{Time: began.UTC(), Session: to, Call: newCall().ID, Caller: journal.CallerOf(ctx), Tool: "rename", Args: map[string]any{"from": name}}
	event.Finish(journal.Outcome{}, nil, time.Since(began))
	h.note(ctx, event)
	return nil
}

// note writes to the log of a session that isn't open, and ignores errors.
func (h *here) note(ctx context.Context, event Event) {
	dir, err := h.store.Open(context.WithoutCancel(ctx), event.Session)
	if err == nil {
		err = errors.Join(dir.AppendLog(event), dir.Close())
	}
	if err != nil {
		h.log.Warn("append to the session's log", "session", event.Session, "error", err)
	}
}

// hasSandbox reports whether a session has a container, running or not.
func (h *here) hasSandbox(ctx context.Context, name string) (bool, error) {
	all, err := h.backend.List(ctx)
	if err != nil {
		known := tool.AsError(toolerr.Of(err))
		return false, tool.Errorf(known.Kind, "session %q keeps its name, as a container of it may be there, and Podman can't be asked: %s; rename it once wisbox doctor finds Podman", name, known.Message).In("session").Because(err)
	}
	return slices.ContainsFunc(all, func(i sandbox.Info) bool { return i.ID == name }), nil
}

func (h *here) remove(ctx context.Context, name string) error {
	defer h.holders.Exclude(ctx, name)()
	return h.store.RemoveWith(ctx, name, h.removeSandbox)
}

// removeSandbox removes a session's container. If Podman can't be reached, the files are removed
// all the same, and a later sweep removes the container.
func (h *here) removeSandbox(ctx context.Context, name string) error {
	err := h.backend.Remove(ctx, name)
	if errors.Is(err, sandbox.ErrUnavailable) {
		h.log.Warn("the container can't be removed now; a later start of wisbox does it", "session", name, "error", err)
		return nil
	}
	return toolerr.Of(err)
}

func (h *here) list(ctx context.Context) ([]overlay.Entry, error) {
	all, err := h.store.List(ctx)
	var locks hold.Locks
	for i, e := range all {
		if e.InUse && locks.Alone(filepath.Join(h.store.Path(), "sessions", e.ID)) {
			all[i].InUse, all[i].Held = false, true
		}
	}
	return all, err
}

// owner returns the host user who owns the workspace's files. Files need no Podman: if it can't be
// asked, owner returns the most likely answer.
func (h *here) owner(ctx context.Context, o SessionOptions) (sandbox.Owner, error) {
	if o.UserNS == usernsAuto {
		return h.ownRange(ctx)
	}
	if o.UserNS == "" && h.separates(ctx, o) {
		if owner, err := h.ownRange(ctx); err == nil {
			return owner, nil
		}
	}
	owner, err := h.backend.Owner(ctx)
	if err != nil {
		h.log.Info("the service can't be asked for the files' owner", "error", err)
	}
	return owner, nil
}

// separates reports whether sessions have their own user IDs, which they do if that costs nothing.
// gVisor counts by user on its own.
func (h *here) separates(ctx context.Context, o SessionOptions) bool {
	ranger, ok := sandbox.As[sandbox.Ranger](h.backend)
	return ok && o.Isolation != sandbox.IsolationGVisor && ranger.CheapRanges(ctx)
}

// ownRange returns the owner of the files of a session whose IDs no other session has.
func (h *here) ownRange(ctx context.Context) (sandbox.Owner, error) {
	ranger, ok := sandbox.As[sandbox.Ranger](h.backend)
	if !ok {
		return sandbox.Owner{}, tool.Errorf(tool.Unsupported, "this backend has no user namespaces").In("userns")
	}
	all, err := h.store.List(ctx)
	if err != nil {
		return sandbox.Owner{}, err
	}
	var taken []sandbox.Owner
	for _, e := range all {
		if u := e.State.User; u != nil {
			taken = append(taken, *u)
		}
	}
	owner, err := ranger.OwnRange(ctx, taken)
	return owner, toolerr.Of(err)
}

func (h *here) copyAllMounts(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error {
	for i, dir := range dirs {
		if err := h.copyMounts(ctx, dir, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// copyMounts copies the mounts in and records their places.
func (h *here) copyMounts(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error {
	if o.MountsFrom != "" {
		return h.takePacked(ctx, dir, *o)
	}
	if len(o.Mounts) == 0 {
		return nil
	}
	if err := h.mountInto(ctx, dir, dir.Workspace(), o); err != nil {
		return err
	}
	return keepGiven(ctx, dir, *o)
}

// mountInto copies the mounts of this machine into a workspace, and sets their places in o.
func (h *here) mountInto(ctx context.Context, dir *overlay.Dir, workspace *os.Root, o *SessionOptions) error {
	if len(o.Mounts) == 0 || o.MountsFrom != "" { // a client sends those of another machine again
		return nil
	}
	report, err := hostmount.Copy(ctx, o.Mounts, &hostmount.Options{
		AllowedRoots: slices.Concat(h.opts.AllowedRoots, o.AllowedRoots), Dest: workspace, Staging: dir.Tmp(),
		Owner: dir.State().User, Progress: o.OnMount, MaxBytes: o.Limits.WithDefaults().Disk, MaxFiles: o.Limits.WithDefaults().Inodes,
	})
	if err = cmp.Or(err, dir.Covered()); err != nil {
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

// takePacked fills a new session with files mounted on another machine. After a reset there are
// none: the client sends them again.
func (h *here) takePacked(ctx context.Context, dir *overlay.Dir, o SessionOptions) error {
	if o.packed == nil {
		return nil
	}
	files, err := newFiles(dir, o)
	if err != nil {
		return err
	}
	if err := errors.Join(wholeImport(ctx, files, o.packed), files.Close()); err != nil {
		return err
	}
	return keepGiven(ctx, dir, o)
}

// PoolOptions keep started containers ready, so that opening a session and running its first
// program doesn't have to start a container.
type PoolOptions struct {
	// Min is the number of containers to keep ready. 0 means no pool.
	Min int
	// Max bounds the containers that are ready or being created; default Min. When sessions are
	// opened faster than the pool fills, it grows to Max; after a quiet minute it shrinks to Min.
	Max int
	// Session has the options of the containers. A session that isn't kept takes one if its own
	// sandbox would be the same.
	Session SessionOptions
}

// openPool creates sessions' directories and containers in advance. A pooled one is an ephemeral
// session without a client; after a crash, the next sweep removes it.
func (h *here) openPool(opts PoolOptions) error {
	var err error
	if h.ready, err = opts.Session.withDefaults(); err != nil {
		return err
	}
	h.ready.Name, h.ready.Kept, h.ready.Mounts, h.ready.Secrets = "", false, nil, nil
	h.ready.Services = nil
	h.ready.setRules(door.Rules{})
	h.pool = pool.New(h.ctx, &pool.Options[*pooled]{Min: opts.Min, Max: opts.Max, Make: h.prepare, Discard: h.discard, Log: h.log})
	return nil
}

// fits reports whether a pooled sandbox suits a session with these options.
func (h *here) fits(o SessionOptions) bool {
	return h.pool != nil && !o.Kept && !o.rules().Opens() && len(o.Services) == 0 && o.Name == "" && o.UserNS == h.ready.UserNS && reflect.DeepEqual(o.spec(), h.ready.spec())
}

// prepare creates a directory and a running container for it.
func (h *here) prepare(ctx context.Context) (*pooled, error) {
	o := h.ready
	if o.Pull == PullAlways { // sessions pull for themselves; a pull for each container would be too much
		o.Pull = PullMissing
	}
	if err := h.pullImage(ctx, &o); err != nil {
		return nil, err
	}
	dir, err := h.createDir(ctx, h.ready)
	if err != nil {
		return nil, err
	}
	l := &local{m: h, dir: dir, opts: h.ready}
	made := &pooled{dir, l.newBox()}
	_, err = made.box.Get(ctx)
	if err := errors.Join(dir.SetState(overlay.StateReady), err); err != nil {
		h.discard(made)
		return nil, err
	}
	return made, nil
}

// discard removes a pooled container and its directory.
func (h *here) discard(item *pooled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), box.DropGrace)
	defer cancel()
	var err error
	if item.box != nil {
		err = item.box.Close(ctx)
	}
	err = errors.Join(err, item.dir.Close(), h.remove(ctx, item.dir.ID()))
	if err != nil {
		h.log.Warn("remove a session that was not opened", "session", item.dir.ID(), "error", err)
	}
}

// Prune removes things without a live owner: sessions, see [overlay.Store.Sweep], with their
// containers; containers of this state root whose session is gone; and templates that were half
// created or removed. It also ends holders that no client can reach. With dryRun it only returns them. Parts of it run automatically, when a
// Manager opens its first session and starts its first container.
func (m *Manager) Prune(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	if m.here == nil {
		return nil, m.errElsewhere("pruning")
	}
	var swept []overlay.Swept
	for _, name := range m.here.holders.EndUnreachable(ctx, "", dryRun) {
		swept = append(swept, overlay.Swept{ID: name, Reason: "a holder that no client can reach"})
	}
	sessions, err := m.here.store.Sweep(ctx, &overlay.SweepOptions{DryRun: dryRun, Before: m.here.removeSandbox})
	swept = append(swept, sessions...)
	if err != nil {
		return swept, err
	}
	for _, name := range m.PruneTemplates(ctx, dryRun) {
		swept = append(swept, overlay.Swept{ID: name, Reason: "a template that was half made or removed"})
	}
	orphans, err := m.here.pruneSandboxes(ctx, dryRun)
	return append(swept, orphans...), err
}

// PruneTemplates does the part of [Manager.Prune] for templates: it removes those that were half
// created or removed when their process ended, and returns them. It also removes unused images that
// were built for templates.
func (m *Manager) PruneTemplates(ctx context.Context, dryRun bool) []string {
	if m.here == nil {
		return nil
	}
	if !dryRun {
		m.here.pruneImages(ctx, time.Now().Add(-buildAge))
	}
	return m.here.kept.Sweep(ctx, dryRun)
}

// sweep removes the remains of dead processes from the state root. A new session doesn't fail
// because an old one can't be removed.
func (h *here) sweep(ctx context.Context) {
	swept, err := h.store.Sweep(ctx, &overlay.SweepOptions{Before: h.removeSandbox})
	h.logSwept(swept, err)
	h.kept.Sweep(ctx, false)
}

// sweepEvery is the interval of a long-lived manager's sweeps.
const sweepEvery = time.Minute

// keepSwept sweeps until the manager closes.
func (h *here) keepSwept() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.sweep(h.ctx)
		case <-h.ctx.Done():
			return
		}
	}
}

// sweepSandboxes removes orphaned containers once, in parallel with the creation of the first
// container: only Close waits for it.
func (h *here) sweepSandboxes() {
	h.sweepSandOnce.Do(func() {
		h.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(h.ctx, sweepTime)
			defer cancel()
			h.logSwept(h.pruneSandboxes(ctx, false))
		})
	})
}

// sweepTime bounds a sweep of containers in the background.
var sweepTime = patience.For(time.Minute)

// pruneSandboxes removes containers of this state root whose session is gone. It lists the
// containers first, so a session that is created meanwhile is safe.
func (h *here) pruneSandboxes(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	boxes, err := h.backend.List(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	entries, err := h.store.List(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(entries))
	for _, e := range entries {
		known[e.ID] = true
	}
	var swept []overlay.Swept
	for _, box := range boxes {
		if known[box.ID] {
			continue
		}
		s := overlay.Swept{ID: box.ID, Reason: "a container whose session is gone"}
		if !dryRun {
			if err := h.backend.Remove(ctx, box.ID); err != nil {
				s.Problem = toolerr.Of(err).Error()
			}
		}
		swept = append(swept, s)
	}
	return swept, nil
}

func (h *here) logSwept(swept []overlay.Swept, err error) {
	if err != nil {
		h.log.Info("sweep", "error", err)
	}
	for _, s := range swept {
		h.log.Info("swept", "session", s.ID, "reason", s.Reason, "problem", s.Problem)
	}
}
