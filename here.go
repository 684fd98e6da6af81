package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// here is the place of sessions on this machine: directories below the state root,
// containers of the backend, and for kept ones a process that holds them.
type here struct {
	opts    *Options
	log     *slog.Logger
	tracer  trace.Tracer
	meter   Meter // nil without one
	store   *overlay.Store
	kept    *templates.Store // one for all: it knows what it has read
	backend sandbox.Backend
	owned   bool // the backend is ours to close
	holders hold.Root

	ctx   context.Context // ends with the Manager
	tasks sync.WaitGroup
	pool  *pool.Pool[*pooled]          // nil without one
	ready SessionOptions               // what the pool's containers are made for
	wasm  func() (*wasm.Engine, error) // one for all sessions: it loads its module on first use
	ended []func() error               // what close closes first

	pulling *lock.Mutex // held by the one who pulls an image

	sweepOnce     sync.Once // of sessions
	sweepSandOnce sync.Once // of containers
}

// pooled is a directory, and a running sandbox for it where it comes from the pool.
type pooled struct {
	dir *overlay.Dir
	box *box.Box
}

func newHere(ctx context.Context, opts *Options, log *slog.Logger, tracer trace.Tracer) (_ *here, err error) {
	h := &here{opts: opts, log: log, tracer: tracer, meter: opts.Meter, ctx: ctx, backend: opts.Backend, pulling: lock.New()}
	var cleanup undo.Steps
	defer cleanup.Run()
	if h.store, err = openStore(opts.CacheDir); err != nil {
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
	h.holders = hold.Root{ID: h.store.ID(), CacheDir: h.store.Path(), RuntimeDir: opts.Podman.RuntimeDir, Command: opts.Holder}
	h.wasm = sync.OnceValues(h.newWasm)
	if opts.Pool.Min > 0 {
		if err := h.openPool(opts.Pool); err != nil {
			return nil, err
		}
	}
	h.tasks.Go(h.keepSwept)
	cleanup.Keep()
	return h, nil
}

func openStore(root string) (*overlay.Store, error) {
	if root == "" {
		def, err := overlay.DefaultRoot()
		if err != nil {
			return nil, err
		}
		root = def
	}
	return overlay.OpenStore(root)
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

func (h *here) newWasm() (*wasm.Engine, error) {
	opts := h.opts.Wasm
	engine, err := wasm.New(&opts)
	if err == nil {
		h.ended = append(h.ended, engine.Close)
	}
	return engine, err
}

func (h *here) close() error {
	h.pool.Close()
	h.tasks.Wait()
	var errs []error
	for _, end := range h.ended {
		errs = append(errs, end())
	}
	if h.owned {
		errs = append(errs, h.backend.Close())
	}
	return errors.Join(append(errs, h.store.Close())...)
}

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
	made := make([]*opened, len(all))
	for i, item := range items {
		var err error
		if made[i], err = h.complete(ctx, item, all[i]); err != nil {
			return nil, err
		}
		cleanup.Add(func() {
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DropGrace)
			defer cancel()
			_ = errors.Join(made[i].exec.close(end, false), made[i].files.Close())
			h.holders.Stop(end, item.dir.ID())
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

// item is the directory of a new session, from the pool where one fits.
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

// complete makes a session that has its files ready.
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

// handOver gives the holder of a new session the secrets that stand in no file.
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
	return h.open(ctx, name, h.holds)
}

// open opens a session whose work is done where held says.
func (h *here) open(ctx context.Context, name string, held func(SessionOptions) bool) (*opened, error) {
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

// optionsOf are those of a session that is whole and whose time isn't over.
func optionsOf(dir *overlay.Dir) (SessionOptions, error) {
	var o SessionOptions
	state := dir.State()
	if state.Status == overlay.StateOpening {
		return o, tool.Errorf(tool.Unavailable, "session %s isn't whole: it is still being made, or whoever made it was ended; wait, or remove it with: wisbox session rm %s", dir.ID(), dir.ID())
	}
	if err := json.Unmarshal(state.Settings, &o); err != nil {
		return o, tool.Errorf(tool.Unavailable, "the settings of session %s can't be read; remove it with: wisbox session rm %s", dir.ID(), dir.ID()).Because(err)
	}
	if reason, expired := state.Expired(overlay.Now()); expired && state.Kept {
		return o, tool.Errorf(tool.Closed, "session %s has ended: %s; make another one", dir.ID(), reason)
	}
	o.Name, o.Kept = dir.ID(), state.Kept
	return o, nil
}

// opened opens the session's files for the tools, and what does its work.
func (h *here) opened(item *pooled, o SessionOptions, elsewhere bool) (*opened, error) {
	files, err := newFiles(item.dir, o)
	if err != nil {
		return nil, err
	}
	out := &opened{dir: item.dir, opts: o, files: files}
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

func (h *here) stop(ctx context.Context, name string) error {
	dir, err := h.store.Open(ctx, name)
	if err != nil {
		return err
	}
	h.holders.Stop(ctx, name)
	if err := errors.Join(ctx.Err(), dir.Close()); err != nil {
		return err
	}
	return h.store.Alone(name, func(s overlay.State) error { // a holder that was killed, or a client without one, has left its container
		if s.Status == overlay.StatePaused {
			return nil
		}
		return h.removeSandbox(ctx, name)
	})
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

// note writes to the log of a session that isn't open. One that can't be written fails nothing.
func (h *here) note(ctx context.Context, event Event) {
	dir, err := h.store.Open(context.WithoutCancel(ctx), event.Session)
	if err == nil {
		err = errors.Join(dir.AppendLog(event), dir.Close())
	}
	if err != nil {
		h.log.Warn("append to the session's log", "session", event.Session, "error", err)
	}
}

// hasSandbox reports whether a container of a session is there, running or not.
func (h *here) hasSandbox(ctx context.Context, name string) (bool, error) {
	all, err := h.backend.List(ctx)
	if err != nil {
		known := tool.AsError(toolerr.Of(err))
		return false, tool.Errorf(known.Kind, "session %q keeps its name, as a container of it may be there, and Podman can't be asked: %s; rename it once wisbox doctor finds Podman", name, known.Message).In("session").Because(err)
	}
	return slices.ContainsFunc(all, func(i sandbox.Info) bool { return i.ID == name }), nil
}

func (h *here) remove(ctx context.Context, name string) error {
	h.holders.Stop(ctx, name)
	return h.store.RemoveWith(ctx, name, h.removeSandbox)
}

// removeSandbox removes a session's container. A Podman that can't be reached
// doesn't keep the files: the container goes with a later sweep.
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
	for i, e := range all {
		if e.InUse && hold.Alone(filepath.Join(h.store.Path(), "sessions", e.ID)) {
			all[i].InUse, all[i].Held = false, true
		}
	}
	return all, err
}

// owner is the host user of the workspace's files. Files need no Podman: where
// it can't be asked the owner is what it would most likely say.
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

// separates: sessions have user IDs of their own where that costs nothing. Under gVisor
// what is counted by user is its own.
func (h *here) separates(ctx context.Context, o SessionOptions) bool {
	ranger, ok := sandbox.As[sandbox.Ranger](h.backend)
	return ok && o.Isolation != sandbox.IsolationGVisor && ranger.CheapRanges(ctx)
}

// ownRange is the owner of files of a session whose IDs no other session has.
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

// copyMounts copies the mounts in and notes where each went.
func (h *here) copyMounts(ctx context.Context, dir *overlay.Dir, o *SessionOptions) error {
	if len(o.Mounts) == 0 {
		return nil
	}
	report, err := hostmount.Copy(ctx, o.Mounts, &hostmount.Options{
		AllowedRoots: slices.Concat(h.opts.AllowedRoots, o.AllowedRoots), Dest: dir.Workspace(), Staging: dir.Tmp(),
		Owner: dir.State().User, Progress: o.OnMount,
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
	return keepGiven(ctx, dir, *o)
}

// PoolOptions keep started containers ready, so that opening a session and
// running its first program costs no container start.
type PoolOptions struct {
	// Min containers are kept ready. 0 is no pool.
	Min int
	// Max bounds the containers that are ready or being made, default Min. When
	// sessions are opened faster than the pool fills, it grows to Max; after a
	// quiet minute it is back at Min.
	Max int
	// Session is what the containers are made for. A session takes one when its
	// sandbox would be the same and it isn't kept.
	Session SessionOptions
}

// openPool makes sessions' directories and containers in advance. A pooled one is an
// ephemeral session without a client: a crash leaves it to the next sweep.
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

// fits reports whether a pooled sandbox is what a session with these options has.
func (h *here) fits(o SessionOptions) bool {
	return h.pool != nil && !o.Kept && !o.rules().Opens() && len(o.Services) == 0 && o.Name == "" && o.UserNS == h.ready.UserNS && reflect.DeepEqual(o.spec(), h.ready.spec())
}

// prepare makes a directory and a running container for it.
func (h *here) prepare(ctx context.Context) (*pooled, error) {
	o := h.ready
	if o.Pull == PullAlways { // the sessions ask; each container again would be too much
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
	err = errors.Join(err, item.dir.Close(), h.store.RemoveWith(ctx, item.dir.ID(), h.removeSandbox))
	if err != nil {
		h.log.Warn("remove a session that was not opened", "session", item.dir.ID(), "error", err)
	}
}
