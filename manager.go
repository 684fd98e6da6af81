package wisbox

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/gate"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/vfs"
)

// Manager opens, finds and removes the sessions of one state root. Its methods
// may be called from many goroutines, and many processes may share a state
// root, each with a Manager of its own.
type Manager struct {
	opts   Options
	log    *slog.Logger
	place  places
	here   *here
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	open   gate.Set[*Session]
}

// places are where sessions live: here, on this machine.
type places interface {
	// create makes sessions, all or none: files fills their workspaces.
	create(ctx context.Context, all []SessionOptions, files populate) ([]*opened, error)
	// attach opens a session that exists.
	attach(ctx context.Context, name string) (*opened, error)
	list(ctx context.Context) ([]overlay.Entry, error)
	// stop ends what runs in a session; its files stay.
	stop(ctx context.Context, name string) error
	// rename gives a session that nobody has open and that has no container another name.
	rename(ctx context.Context, name, to string) error
	// remove ends a session, with its programs, and then its files.
	remove(ctx context.Context, name string) error
	close() error
}

// opened is a session of a place, open in this process.
type opened struct {
	dir   *overlay.Dir
	opts  SessionOptions
	files *vfs.FS
	exec  executor
}

// populate fills the workspaces of sessions that are being made.
type populate func(ctx context.Context, dirs []*overlay.Dir, all []SessionOptions) error

// NewManager opens the state root. Podman isn't looked for until a session runs
// its first program. Close the Manager when done.
func NewManager(ctx context.Context, opts *Options) (*Manager, error) {
	m := &Manager{}
	if opts != nil {
		m.opts = *opts
	}
	m.log = m.opts.Logger
	if m.log == nil {
		m.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	cleanup.Add(m.cancel)
	var err error
	if m.here, err = newHere(m.ctx, &m.opts, m.log, m.tracer()); err != nil {
		return nil, err
	}
	m.place = m.here
	cleanup.Keep()
	return m, nil
}

// tracerName is the scope of our spans.
const tracerName = "github.com/wisbox/wisbox"

func (m *Manager) tracer() trace.Tracer {
	if m.opts.TracerProvider == nil {
		return noop.NewTracerProvider().Tracer(tracerName)
	}
	return m.opts.TracerProvider.Tracer(tracerName)
}

// Backend is what the sessions' sandboxes are made by.
func (m *Manager) Backend() sandbox.Backend { return m.here.backend }

// Open makes a session: its directory with the mounts copied in is there when
// Open returns, its container comes with the first program. A name that is
// taken is exists. On any error nothing of it is left. nil options work.
func (m *Manager) Open(ctx context.Context, opts *SessionOptions) (*Session, error) {
	if opts != nil {
		if err := box.CheckSecrets(inner(opts.Secrets)); err != nil {
			return nil, err
		}
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Template != "" {
		return m.openFrom(ctx, *opts)
	}
	if err := m.here.pullImage(ctx, &o); err != nil {
		return nil, err
	}
	return m.openWith(ctx, &o, m.here.copyAllMounts)
}

func (m *Manager) openWith(ctx context.Context, opts *SessionOptions, files populate) (*Session, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	all, err := m.openAll(ctx, []SessionOptions{o}, files)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// openAll makes sessions, all or none.
func (m *Manager) openAll(ctx context.Context, all []SessionOptions, files populate) ([]*Session, error) {
	made, err := m.place.create(ctx, all, files)
	if err != nil {
		return nil, err
	}
	sessions := make([]*Session, len(made))
	for i, o := range made {
		if sessions[i], err = m.newSession(o.dir, o.opts, o.files, o.exec); err != nil {
			return nil, errors.Join(err, m.giveUp(ctx, sessions[:i], made[i:]))
		}
	}
	return sessions, nil
}

// giveUp removes sessions of which only some could be opened.
func (m *Manager) giveUp(ctx context.Context, sessions []*Session, rest []*opened) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DropGrace)
	defer cancel()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.end(ctx, false), m.Remove(ctx, s.ID()))
	}
	for _, o := range rest {
		errs = append(errs, o.exec.close(ctx, false), o.files.Close(), o.dir.Close(), m.place.remove(ctx, o.dir.ID()))
	}
	return errors.Join(errs...)
}

// Attach opens a session that exists: a kept one that another process made, or
// an ephemeral one of this process. An unknown name is not_found.
func (m *Manager) Attach(ctx context.Context, name string) (*Session, error) {
	o, err := m.place.attach(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := m.newSession(o.dir, o.opts, o.files, o.exec)
	if err != nil {
		return nil, errors.Join(err, o.exec.close(ctx, true), o.files.Close(), o.dir.Close())
	}
	return s, nil
}

// Remove ends a session by name: its holder, its container, then its files. It
// waits at most 5 s for clients to leave, then it is busy. An unknown name is
// not_found.
func (m *Manager) Remove(ctx context.Context, name string) error { return m.place.remove(ctx, name) }

// Stop ends what runs in a kept session: its programs, what interpreters keep, its services
// and its container. Files, snapshots and the log stay; the next call starts a container
// again. Values of secrets that stand in no file are gone. A session in which nothing runs
// is no error, an unknown name is not_found. What another process that is no holder runs
// in a session of its own isn't ended.
func (m *Manager) Stop(ctx context.Context, name string) error { return m.place.stop(ctx, name) }

// Rename gives a kept session another name. Files, snapshots and the log stay with it. One that
// has a holder, a handle or a container is busy: close handles and [Manager.Stop] it before.
// Without a backend that can be asked for the container it is unavailable. A name that is taken
// is exists, a paused session unavailable, an unknown one not_found. After an error the session has
// its old name.
func (m *Manager) Rename(ctx context.Context, name, to string) error {
	return m.place.rename(ctx, name, to)
}

// List reports what sessions the state root holds, those that are lost too.
func (m *Manager) List(ctx context.Context) ([]overlay.Entry, error) { return m.place.list(ctx) }

// SessionImages reports which image each kept session was created with, by the
// session's name: none of its programs can run without it. Those of its services
// have theirs behind it, and templates are among them.
func (m *Manager) SessionImages(ctx context.Context) (map[string]string, error) {
	all, err := m.List(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	kept, err := m.Templates()
	if err != nil {
		return nil, err
	}
	for _, t := range kept {
		found["template "+t.ID] = t.Image
	}
	for _, e := range all {
		if e.Problem != "" || len(e.State.Settings) == 0 {
			continue // lost: no program runs in it
		}
		o, err := settingsOf(e.State.Settings)
		if err != nil {
			return nil, err
		}
		found[e.ID] = o.Image
		for _, c := range o.Services {
			found[e.ID+" (service "+c.Name+")"] = c.Image
		}
	}
	return found, nil
}

// Stats are what a Manager has open and has done.
type Stats struct {
	Sessions int   // handles on sessions that are open
	Opened   int64 // and that were ever opened or attached
	Pool     PoolStats
}

// PoolStats are those of the pool, all 0 without one: the containers that are ready
// and being made, and how many sessions found one or had to make theirs.
type PoolStats = pool.Stats

// Stats may be called at any time.
func (m *Manager) Stats() Stats {
	now, ever := m.open.Count()
	return Stats{Sessions: now, Opened: ever, Pool: m.here.pool.Stats()}
}

// Close closes the sessions that this Manager opened and frees the rest.
func (m *Manager) Close() error {
	var errs []error
	for _, s := range m.open.Close() {
		errs = append(errs, s.Close(context.Background()))
	}
	m.cancel()
	return errors.Join(append(errs, m.place.close())...)
}
