package wisbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"runtime"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/wisbox/wisbox/digest"
	"github.com/wisbox/wisbox/evaltool/wasm"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/gate"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/internal/sharing"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Manager opens, finds and removes the sessions of one state root. Its methods may be called from many goroutines at
// once. Many processes may share a state root, each with its own Manager.
type Manager struct {
	opts   Options
	log    *slog.Logger
	place  places
	here   *here           // nil if the sessions are on another machine
	there  *there          // nil if they are on this one
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	open   gate.Set[*Session]
	engine sharing.Lazy[*wasm.Engine] // one for all sessions; it loads its module on first use
	guests far.Guests
}

// places is the place of sessions: this machine or another one.
type places interface {
	// open creates a session, with its mounts or from its template.
	open(ctx context.Context, o SessionOptions) (*opened, error)
	// load creates a session from an archive, and returns the settings that it left out.
	load(ctx context.Context, r io.Reader, o LoadOptions) (*opened, []string, error)
	// fork creates n copies of a session of this place, all or none.
	fork(ctx context.Context, s *Session, n int, o CloneOptions) ([]*opened, error)
	// attach opens an existing session.
	attach(ctx context.Context, name string) (*opened, error)
	list(ctx context.Context) ([]overlay.Entry, error)
	// stop ends the programs of a session; its files stay.
	stop(ctx context.Context, name string) error
	// rename changes the name of a session without open handles and without a container.
	rename(ctx context.Context, name, to string) error
	// remove ends a session, with its programs, and then its files.
	remove(ctx context.Context, name string) error
	readLog(ctx context.Context, name string, connections bool, each func(line []byte) error) error
	templates() ([]Template, error)
	findTemplate(ref, owner string) (Template, error)
	removeTemplate(ctx context.Context, id string) error
	// digest returns the digest of all sessions without their own.
	digest(tag string) *digest.Digester
	close() error
}

// opened is a session of a place, open in this process.
type opened struct {
	at   site
	opts SessionOptions
	exec executor
	// remove removes exactly this session, since its name may have been reused; nil removes by name.
	remove func(context.Context) error
}

// close closes a session that was never returned to a caller.
func (o *opened) close(ctx context.Context, keep bool) error {
	return errors.Join(o.exec.close(ctx, keep), o.at.Close())
}

// site is the part of a session that depends on its place, besides its executor.
type site interface {
	ID() string
	WorkspacePath() string
	Files() fs.FS
	Watch(ctx context.Context, path string) (<-chan vfs.Change, error)
	Digest() *digest.Digester
	created() overlay.Stamp
	// Touch records a call of the session.
	Touch()
	// renew records a use of the session that isn't a call.
	renew(ctx context.Context) error
	// fill adds mounts, which are one tar stream.
	fill(ctx context.Context, mounts io.Reader) error
	// look answers one request about files, without starting the session's holder.
	look(ctx context.Context, l far.Look, w io.Writer) ([]far.File, error)
	// awake returns an error if the session is known to be paused.
	awake() error
	// renewed replaces the files with the answer of a reset.
	renewed(files any) error
	Close() error
}

// system is the operating system. Tests change it.
var system = runtime.GOOS

// NewManager opens the state root. It doesn't look for Podman until a session runs its first program. Close the Manager
// when done. On systems other than Linux the error is unsupported, unless the options have a Backend or name another
// machine.
func NewManager(ctx context.Context, opts *Options) (*Manager, error) {
	m := &Manager{}
	if opts != nil {
		m.opts = *opts
	}
	m.engine.New = func() (*wasm.Engine, error) {
		o := m.opts.Wasm
		return wasm.New(&o)
	}
	m.log = m.opts.Logger
	if m.log == nil {
		m.log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	var cleanup undo.Steps
	defer cleanup.Run()
	m.ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	cleanup.Add(m.cancel)
	if err := m.findPlace(); err != nil {
		return nil, err
	}
	cleanup.Keep()
	return m, nil
}

// findPlace opens the place of the sessions according to the options.
func (m *Manager) findPlace() (err error) {
	switch {
	case m.opts.FarConnect == nil && far.IsKube(m.opts.Far):
		all, err := newPods(&m.opts, m.log)
		if err != nil {
			return err
		}
		m.place, m.there = all, all.own
	case m.opts.Far != "" || m.opts.FarConnect != nil:
		if m.there, err = newThere(&m.opts, m.log); err != nil {
			return err
		}
		m.place = m.there
	case system != "linux" && m.opts.Backend == nil:
		return tool.Errorf(tool.Unsupported, "sessions need Linux, and this machine has another system; name a Linux machine that has wisbox, as Far (ssh://USER@HOST)").In("far")
	default:
		if m.here, err = newHere(m.ctx, &m.opts, m.log, m.tracer()); err != nil {
			return err
		}
		m.here.wasm, m.place = m.wasm, m.here
	}
	return nil
}

// tracerName is the scope of our spans.
const tracerName = "github.com/wisbox/wisbox"

func (m *Manager) tracer() trace.Tracer {
	if m.opts.TracerProvider == nil {
		return noop.NewTracerProvider().Tracer(tracerName)
	}
	return m.opts.TracerProvider.Tracer(tracerName)
}

func init() { hold.Propagator = propagator{} }

// propagator carries spans between a client and the process that holds the session.
type propagator struct{}

func (propagator) Inject(ctx context.Context) map[string]string {
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, out)
	return out
}

func (propagator) Extract(ctx context.Context, headers map[string]string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(headers))
}

// Backend returns the backend that creates the sandboxes, or nil if they are on another machine.
func (m *Manager) Backend() sandbox.Backend {
	if m.here == nil {
		return nil
	}
	return m.here.backend
}

// wasm returns the engine of Python in WebAssembly. It only describes the tool if the sessions are on another machine.
func (m *Manager) wasm() (*wasm.Engine, error) {
	engine, err := m.engine.Get()
	if errors.Is(err, sharing.ErrClosed) {
		return nil, errManagerClosed
	}
	return engine, err
}

// Open creates a session. When it returns, the mounts have been copied into the workspace; the first program creates
// the container. If the name is taken, the error is exists. After an error nothing of the session is left. nil options
// work.
func (m *Manager) Open(ctx context.Context, opts *SessionOptions) (*Session, error) {
	if opts != nil {
		if err := box.CheckSecrets(inner(opts.Secrets)); err != nil {
			return nil, err
		}
	}
	if _, err := opts.withDefaults(); err != nil {
		return nil, err
	}
	o := SessionOptions{}
	if opts != nil {
		o = *opts
	}
	made, err := m.place.open(ctx, o)
	if err != nil {
		return nil, err
	}
	return m.oneOf(m.sessions(ctx, []*opened{made}))
}

func (m *Manager) oneOf(all []*Session, err error) (*Session, error) {
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// sessions wraps the sessions that a place has created, all or none.
func (m *Manager) sessions(ctx context.Context, made []*opened) (_ []*Session, err error) {
	sessions := make([]*Session, len(made))
	for i, o := range made {
		if sessions[i], err = m.newSession(o); err != nil {
			return nil, errors.Join(err, m.giveUp(ctx, sessions[:i], made[i:]))
		}
	}
	return sessions, nil
}

// giveUp removes new sessions after one of them couldn't be opened.
func (m *Manager) giveUp(ctx context.Context, sessions []*Session, rest []*opened) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), box.DropGrace)
	defer cancel()
	var errs []error
	for _, s := range sessions {
		errs = append(errs, s.end(ctx, false), m.discard(ctx, s.remove, s.ID()))
	}
	for _, o := range rest {
		errs = append(errs, o.close(ctx, false), m.discard(ctx, o.remove, o.at.ID()))
	}
	return errors.Join(errs...)
}

// discard removes a session that this process created.
func (m *Manager) discard(ctx context.Context, remove func(context.Context) error, name string) error {
	if remove != nil {
		return remove(ctx)
	}
	return m.place.remove(ctx, name)
}

// Attach opens an existing session: a kept one, or an ephemeral one of this process. If the name is unknown, the error
// is not_found.
func (m *Manager) Attach(ctx context.Context, name string) (*Session, error) {
	o, err := m.place.attach(ctx, name)
	if err != nil {
		return nil, err
	}
	s, err := m.newSession(o)
	if err != nil {
		return nil, errors.Join(err, o.close(ctx, true))
	}
	return s, nil
}

// Remove removes a session by name: its holder, its container, then its files. It waits at most 5 s for clients to
// leave; then the error is busy. If the name is unknown, it is not_found.
func (m *Manager) Remove(ctx context.Context, name string) error { return m.place.remove(ctx, name) }

// Stop ends the programs, interpreters, services and container of a kept session. A paused session is no longer paused
// afterwards. Files, snapshots and the log stay; secrets without a file are lost. The next call starts a new container.
// It isn't an error if nothing runs in the session; if the name is unknown, the error is not_found. Programs of a
// session that another process uses without a holder continue.
func (m *Manager) Stop(ctx context.Context, name string) error { return m.place.stop(ctx, name) }

// Rename changes the name of a kept session, which keeps its files, snapshots and log. If the session has a holder, a
// handle or a container, the error is busy: close the handles and call [Manager.Stop] first. If the new name is taken,
// the error is exists; if the session is unknown, not_found; if it is paused, or the backend can't be asked for its
// container, unavailable. After an error the session has its old name.
func (m *Manager) Rename(ctx context.Context, name, to string) error {
	return m.place.rename(ctx, name, to)
}

// List returns the sessions of the state root, including lost ones.
func (m *Manager) List(ctx context.Context) ([]overlay.Entry, error) { return m.place.list(ctx) }

// SessionImages returns the image of each kept session, by the session's name; its programs can't run without it.
// Services and templates have their own entries, "NAME (service SERVICE)" and "template ID".
func (m *Manager) SessionImages(ctx context.Context) (map[string]string, error) {
	return imagesOf(ctx, m.place)
}

func imagesOf(ctx context.Context, p places) (map[string]string, error) {
	all, err := p.list(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	kept, err := p.templates()
	if err != nil {
		return nil, err
	}
	for _, t := range kept {
		found["template "+t.ID] = t.Image
	}
	for _, e := range all {
		if e.Problem != "" || len(e.State.Settings) == 0 {
			continue // lost: no program can run in it
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

// Log calls each with every line of a session's log, or of the log of its connections, until each returns an error. If
// the session is unknown, the error is not_found.
func (m *Manager) Log(ctx context.Context, name string, connections bool, each func(line []byte) error) error {
	return m.place.readLog(ctx, name, connections, each)
}

// Stats counts a Manager's sessions.
type Stats struct {
	Sessions int   // open handles on sessions
	Opened   int64 // handles ever opened or attached
	Pool     PoolStats
}

// PoolStats counts the containers that are ready and being created, and the sessions that found one in the pool or had
// to create one. All are 0 without a pool.
type PoolStats = pool.Stats

// Stats returns the current counts.
func (m *Manager) Stats() Stats {
	now, ever := m.open.Count()
	out := Stats{Sessions: now, Opened: ever}
	if m.here != nil {
		out.Pool = m.here.pool.Stats()
	}
	return out
}

// Close closes the sessions that this Manager opened, and releases its other resources.
func (m *Manager) Close() error {
	var errs []error
	for _, s := range m.open.Close() {
		errs = append(errs, s.Close(context.Background()))
	}
	m.cancel()
	return errors.Join(append(errs, m.place.close(), m.engine.Close())...)
}
