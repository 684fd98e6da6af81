package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/gate"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/inside"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Event is the record of one call: a line of the session's log.jsonl and what
// [Options.OnEvent] gets. It holds no content, no environment, no code, and no
// value of a secret.
type Event = journal.Event

// Effects are what a call did to the workspace: what the tools themselves wrote
// always, what programs wrote where [SessionOptions.AutoSnapshot] is on.
type Effects = journal.Effects

// Undone says what [Session.Undo] did.
type Undone = journal.Undone

// Step is what [Session.Undo] can go back to.
type Step = journal.Step

// WithCaller names who makes the calls of a context, in at most 300 bytes: a
// user, an agent, a client. The default is the process, as wisbox[1234].
func WithCaller(ctx context.Context, who string) context.Context {
	return tool.WithCaller(ctx, who)
}

// Session is one workspace and the tools over it. Its methods may be called
// from many goroutines at once: programs run side by side, only changes of
// files by tools wait for each other. After Close every call is closed.
type Session struct {
	*shared
	m     *Manager
	opts  SessionOptions
	calls *gate.Gate
	extra *tool.Set // the embedder's own tools
}

// shared is what the handles on one session share, see [Session.Clone].
type shared struct {
	dir        *overlay.Dir
	handles    atomic.Int32   // -1 when the last one is closed
	busy       sync.WaitGroup // the handles whose calls aren't over
	generation *gate.Generation
	exec       executor
	vfs        atomic.Pointer[vfs.FS] // replaced by [Session.Reset]
}

// executor does a session's operations: in this process ([local]), or in the
// process that holds a kept session ([held]).
type executor interface {
	do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (answer any, out journal.Outcome, err error)
	start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error)
	// record writes the call to the session's log, unless another process does, and
	// takes the secrets out of what the caller gets. ours is a call that only this
	// process knows.
	record(event Event, err error, ours bool) (Event, error)
	// steady keeps the session from being paused until unlock; one that is paused is an error.
	steady(ctx context.Context) (unlock func(), err error)
	// letGo is for before calls are waited for: those of a paused session can't end, so it
	// gives the sandbox up then, which stays where keep is set.
	letGo(ctx context.Context, keep bool) error
	// close ends the executor; the sandbox goes too unless keep is set.
	close(ctx context.Context, keep bool) error
}

func (m *Manager) newSession(dir *overlay.Dir, opts SessionOptions, files *vfs.FS, exec executor) (*Session, error) {
	w := &shared{dir: dir, exec: exec, generation: gate.NewGeneration(m.ctx)}
	w.vfs.Store(files)
	s, err := m.newHandle(w, opts)
	if err != nil {
		return nil, err
	}
	if !m.open.Add(s) { // who made exec closes it
		return nil, errManagerClosed
	}
	return s, nil
}

var errManagerClosed = tool.Errorf(tool.Closed, "the manager is closed")

// newHandle is one more session over the same session, which the Manager doesn't know yet.
func (m *Manager) newHandle(w *shared, opts SessionOptions) (*Session, error) {
	opts.Secrets = named(opts.Secrets)
	s := &Session{shared: w, m: m, opts: opts, calls: gate.New(m.ctx)}
	if m.opts.Tools != nil {
		s.extra = tool.NewSet(m.opts.Tools(s)...)
	}
	if !w.join() {
		return nil, errClosed
	}
	return s, nil
}

// join counts a handle, unless the last one was closed.
func (w *shared) join() bool {
	for {
		n := w.handles.Load()
		if n < 0 {
			return false
		}
		if w.handles.CompareAndSwap(n, n+1) {
			w.busy.Add(1)
			return true
		}
	}
}

// leave is the inverse of join, and reports whether it was the last handle.
func (w *shared) leave() (last bool) {
	return w.handles.Add(-1) == 0 && w.handles.CompareAndSwap(0, -1)
}

// ID names the session.
func (s *Session) ID() string { return s.dir.ID() }

// Options are what the session was opened with, defaults filled in.
func (s *Session) Options() SessionOptions { return s.opts }

// WorkspacePath is the host directory that programs see as /workspace. A
// program may change it at any time, links included: use [Session.Files] or the
// tools to read it.
func (s *Session) WorkspacePath() string { return s.dir.WorkspacePath() }

// Files is the workspace as a read-only file system that can't be left.
func (s *Session) Files() fs.FS { return s.vfs.Load().FS() }

// Watch tells of changes below a directory of the workspace, by tools and by
// programs, until ctx ends or the session is closed, see [vfs.FS.Watch].
func (s *Session) Watch(ctx context.Context, path string) (<-chan vfs.Change, error) {
	return s.vfs.Load().Watch(ctx, path)
}

// Call runs a tool by its name in the session's profile with the JSON object of its
// arguments. Every error is a *tool.Error. ctx's end kills what the call started.
func (s *Session) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	if t, ok := s.lookupExtra(name); ok {
		return s.callExtra(ctx, t, raw)
	}
	return perform[*tool.Result](ctx, s, callOp{Tool: name, Args: string(raw)}, hold.Streams{})
}

// CallOwn is Call by wisbox's own names and shapes, whatever profile the session has
// and whatever tools its embedder has added.
func (s *Session) CallOwn(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	return perform[*tool.Result](ctx, s, callOp{Tool: name, Own: true, Args: string(raw)}, hold.Streams{})
}

// Run runs one program with the caller's own streams and without the bounds of
// shell_execute: no cap on output, no time limit but cmd.Timeout.
func (s *Session) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	op, err := programOf(cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	return perform[sandbox.Result](ctx, s, runOp{op}, streamsOf(cmd))
}

// Start begins a program and returns: it lives until it ends, is killed, or the
// session is closed. With cmd.TTY it is what a terminal needs. Its end is in the log.
// For one that outlives its caller see [Session.StartProcess].
func (s *Session) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	op, err := programOf(cmd)
	if err != nil {
		return nil, err
	}
	return s.start(ctx, startOp{program: op}, streamsOf(cmd), "")
}

func (s *Session) start(ctx context.Context, op starter, io hold.Streams, call string) (sandbox.Process, error) {
	answer, _, err := s.observe(ctx, record{event: op.event(), id: call}, func(ctx context.Context, c journal.Call) (any, journal.Outcome, error) {
		return s.exec.start(ctx, c, op, io)
	})
	if err != nil {
		return nil, err
	}
	return answer.(sandbox.Process), nil
}

// Inside is the files of the session's sandbox, anywhere in it, with the rights of its
// programs; the sandbox is made where there is none. Its errors are [*tool.Error]s that
// wrap those of [sandbox.FileSystem]. What reads and changes content is recorded, as
// inside_write; to look around is not. Content is as it stands, secrets too.
func (s *Session) Inside() sandbox.FileSystem {
	return inside.Client{Do: func(ctx context.Context, a *inside.Ask, in io.Reader, out io.Writer) error {
		_, err := perform[struct{}](ctx, s, insideOp{*a}, hold.Streams{Stdin: in, Stdout: out})
		return err
	}}
}

// Import unpacks a tar stream below a directory of the workspace, see
// [vfs.FS.Import]: it can't write elsewhere, whatever the stream says.
func (s *Session) Import(ctx context.Context, stream io.Reader, dest string) (*vfs.Transfer, error) {
	return perform[*vfs.Transfer](ctx, s, importOp{Dest: dest}, hold.Streams{Stdin: stream})
}

// Export writes a file or directory of the workspace as a tar stream that
// unpacks nowhere else, see [vfs.FS.Export].
func (s *Session) Export(ctx context.Context, path string, w io.Writer) (*vfs.Transfer, error) {
	return perform[*vfs.Transfer](ctx, s, exportOp{Path: path}, hold.Streams{Stdout: w})
}

// Undo makes the workspace what it was before a call: the last one that changed
// more than what programs write by themselves (caches, git's index), or the one of the id
// given, and then all after it are undone too. There
// must be a step of that call ([SessionOptions.AutoSnapshot]), else it is
// not_found. The state before the undo stays as a snapshot.
func (s *Session) Undo(ctx context.Context, call string) (*Undone, error) {
	return perform[*Undone](ctx, s, undoOp{Step: call}, hold.Streams{})
}

// Steps are the last calls that [Session.Undo] can go back to, at most n (default and most
// 20), the latest first. Finding what each has changed takes as long as a look at the
// whole workspace a step.
func (s *Session) Steps(ctx context.Context, n int) ([]Step, error) {
	return perform[[]Step](ctx, s, stepsOp{N: n}, hold.Streams{})
}

// RemoveSnapshots forgets snapshots and gives back the room that no other needs.
func (s *Session) RemoveSnapshots(ctx context.Context, ids ...string) error {
	_, err := perform[struct{}](ctx, s, removeSnapshotsOp{IDs: ids}, hold.Streams{})
	return err
}

// Save writes an archive of the session: its workspace as it is, its snapshots,
// what it has defined in Lisp, and its settings (the variables of its programs
// too, so treat the archive as you treat them). [Manager.Load] makes a session of it, here or on another
// machine. What runs and what interpreters keep is not in it.
func (s *Session) Save(ctx context.Context, w io.Writer) (snapshot.Info, error) {
	return perform[snapshot.Info](ctx, s, saveOp{}, hold.Streams{Stdout: w})
}

// SetSecrets adds secrets to the session, or replaces those of the same names:
// programs that begin afterwards find them. A kept session's holder keeps values
// that have no file and stays for them, without clients too.
func (s *Session) SetSecrets(ctx context.Context, all map[string]Secret) error {
	secrets := inner(all)
	if err := box.CheckSecrets(secrets); err != nil {
		return err
	}
	_, err := perform[struct{}](ctx, s, secretsOp{Secrets: secrets}, hold.Streams{})
	return err
}

// Inspect reports what the session is and which limits its sandbox enforces. It
// opens a running sandbox, but makes none: Sandbox is nil before the first program.
func (s *Session) Inspect(ctx context.Context) (*Inspection, error) {
	return perform[*Inspection](ctx, s, inspectOp{}, hold.Streams{})
}

var errClosed = tool.Errorf(tool.Closed, "the session is closed; open another one")

var errReset = tool.Errorf(tool.Closed, "the session was reset during the call")

// Reset empties the session: calls under way end, programs and what interpreters
// keep are gone, and the next call starts from a new workspace with the mounts
// copied again. The snapshots and the log stay. All handles on the session see
// that. After an error Reset may be called again.
func (s *Session) Reset(ctx context.Context) error {
	paused := awake(s.dir) // first: calls under way would be ended
	_, _, err := s.observeAlone(ctx, record{event: resetOp{}.event(), ours: paused != nil}, func(ctx context.Context, c journal.Call) (answer any, out journal.Outcome, err error) {
		if paused != nil {
			return nil, out, paused
		}
		unlock, err := s.exec.steady(ctx)
		if tool.KindOf(err) == tool.Busy && awake(s.dir) == nil { // as by a snapshot, which ends with the others
			s.generation.End(ctx, errReset)
			unlock, err = s.exec.steady(ctx)
		}
		if err != nil {
			return nil, out, err
		}
		defer unlock()
		err = s.generation.Replace(ctx, errReset, func() error {
			files, _, err := s.exec.do(ctx, c, resetOp{}, hold.Streams{})
			if fresh, ok := files.(*vfs.FS); ok {
				err = errors.Join(err, s.vfs.Swap(fresh).Close())
			}
			return err
		})
		return nil, out, err
	})
	return err
}

// perform has the executor do one operation inside the session, and records it.
func perform[R any](ctx context.Context, s *Session, op operation, io hold.Streams) (R, error) {
	var out R
	answer, _, err := s.perform(ctx, op, io, "")
	if err != nil {
		if early, ok := answer.(R); ok {
			return early, err
		}
		return out, err
	}
	return answerAs[R](answer)
}

// perform is for the call of that id; "" makes one.
func (s *Session) perform(ctx context.Context, op operation, io hold.Streams, call string) (any, journal.Outcome, error) {
	return s.observe(ctx, record{event: op.event(), id: call}, func(ctx context.Context, c journal.Call) (any, journal.Outcome, error) {
		return s.exec.do(ctx, c, op, io)
	})
}

type action func(context.Context, journal.Call) (any, journal.Outcome, error)

// record is what is known of a call before it is made.
type record struct {
	event Event  // without a tool nothing is recorded
	id    string // "" makes one
	ours  bool   // only this process knows the call
}

// observe runs one call inside the session and records it.
func (s *Session) observe(ctx context.Context, r record, do action) (any, journal.Outcome, error) {
	return s.observeAlone(ctx, r, func(ctx context.Context, c journal.Call) (any, journal.Outcome, error) {
		ctx, leave := s.generation.Join(ctx)
		defer leave()
		return do(ctx, c)
	})
}

// observeAlone is observe for what replaces what other calls work with.
func (s *Session) observeAlone(ctx context.Context, r record, do action) (any, journal.Outcome, error) {
	ctx, leave, err := s.calls.Enter(ctx)
	if err != nil {
		return nil, journal.Outcome{}, errClosed
	}
	defer leave()
	event, call := r.event, cmp.Or(r.id, newCall().ID)
	if event.Tool == "" {
		answer, out, err := do(ctx, journal.Call{ID: call})
		return answer, out, asToolError(err)
	}
	s.dir.Touch()
	began := time.Now()
	event.Time, event.Session, event.Call, event.Caller = began.UTC(), s.ID(), call, journal.CallerOf(ctx)
	ctx, span := s.m.tracer().Start(ctx, "wisbox "+event.Tool, trace.WithAttributes(attribute.String("wisbox.session", event.Session), attribute.String("wisbox.call", event.Call)))
	recorded := make(chan struct{})
	defer close(recorded)
	answer, out, err := do(ctx, journal.Call{ID: call, Tool: event.Tool, Recorded: recorded})
	event.Finish(out, err, time.Since(began))
	event, err = s.exec.record(event, err, r.ours)
	s.tell(event, err)
	endSpan(span, event)
	return answer, out, asToolError(err)
}

// asToolError is err as a *tool.Error, and nil for nil.
func asToolError(err error) error {
	if err == nil {
		return nil
	}
	return tool.AsError(err)
}

// tell gives the embedder the event.
func (s *Session) tell(event Event, err error) {
	if cause := errors.Unwrap(err); cause != nil {
		s.m.log.Info("call", "session", s.ID(), "tool", event.Tool, "outcome", event.Outcome, "cause", cause)
	}
	s.m.log.LogAttrs(context.Background(), slog.LevelDebug, "call",
		slog.String("session", event.Session), slog.String("call", event.Call), slog.String("tool", event.Tool), slog.String("outcome", event.Outcome),
		slog.String("status", event.Verdict), slog.Int("result_bytes", event.ResultSize), slog.Int64("duration_ms", event.Duration.Milliseconds()))
	if s.m.opts.Meter != nil {
		s.m.opts.Meter.Call(event)
	}
	if s.opts.OnEvent != nil {
		s.opts.OnEvent(event)
	} else if s.m.opts.OnEvent != nil {
		s.m.opts.OnEvent(event)
	}
}

// endSpan ends a call's span with what its event tells.
func endSpan(span trace.Span, e Event) {
	span.SetAttributes(attribute.String("wisbox.outcome", e.Outcome))
	if e.Verdict != "" {
		span.SetAttributes(attribute.String("wisbox.verdict", e.Verdict))
	}
	if e.Outcome != "ok" && e.Outcome != "failed" {
		span.SetStatus(codes.Error, e.Message)
	}
	span.End()
}

// Close ends the session: calls in flight are cancelled, programs killed. An
// ephemeral session goes with its container, files and all; a kept one stays
// for the next client. Of several handles ([Session.Clone]) the last one does
// that; another one of a paused session doesn't wait for its calls. A second Close does
// nothing.
func (s *Session) Close(ctx context.Context) error { return s.end(ctx, s.opts.Kept) }

// end closes the session once; keepSandbox leaves the container for others.
func (s *Session) end(ctx context.Context, keepSandbox bool) error {
	if !s.calls.Close() {
		return nil
	}
	s.m.open.Remove(s)
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.calls.Wait()
		s.busy.Done()
	}()
	if !s.leave() {
		s.awaitCalls(over)
		return nil
	}
	errs := []error{s.exec.letGo(ctx, keepSandbox)}
	s.busy.Wait()
	errs = append(errs, s.exec.close(ctx, keepSandbox), s.vfs.Load().Close(), s.dir.Close())
	if !s.opts.Kept {
		errs = append(errs, s.m.Remove(ctx, s.ID()))
	}
	return errors.Join(errs...)
}

// pauseLook is how often a handle whose calls don't end looks whether the session is paused.
const pauseLook = 100 * time.Millisecond

// awaitCalls waits for the calls of a handle, unless the session is paused: then they end
// with the last handle, or the resume.
func (s *Session) awaitCalls(over <-chan struct{}) {
	look := time.NewTicker(pauseLook)
	defer look.Stop()
	for awake(s.dir) == nil {
		select {
		case <-over:
			return
		case <-look.C:
		}
	}
}

// Usage is what a session takes at one moment, see [Session.Usage].
type Usage struct {
	Running bool           `json:"running"` // it has a container
	Limits  sandbox.Limits `json:"limits"`
	Disk    int64          `json:"disk_bytes"` // of the workspace; 0 also where it isn't counted
	Inodes  int64          `json:"inodes"`
	// Gauge is what the container takes; nil without one, and where that isn't counted.
	Gauge *sandbox.Gauge `json:"container,omitempty"`
	// Problem says why nobody knows whether there is a container.
	Problem string `json:"problem,omitempty"`
}

// Usage looks at what the session takes now. It starts nothing, and is not recorded.
func (s *Session) Usage(ctx context.Context) (*Usage, error) {
	return perform[*Usage](ctx, s, usageOp{}, hold.Streams{})
}

// Inspection is what `wisbox session inspect` shows.
type Inspection struct {
	ID        string    `json:"id"`
	Kept      bool      `json:"kept"`
	State     string    `json:"state"` // ready, paused
	Created   time.Time `json:"created_at"`
	Image     string    `json:"image"`
	Workspace string    `json:"workspace"`
	Profile   string    `json:"profile,omitempty"` // that the session was created with
	// What else it was created with: of variables and secrets the names.
	Mounts       []hostmount.Mount `json:"mounts,omitempty"`
	Env          []string          `json:"env,omitempty"`
	Secrets      []string          `json:"secrets,omitempty"`
	Paths        vfs.Grammar       `json:"paths,omitempty"` // as [SessionOptions.Paths]
	AutoSnapshot bool              `json:"auto_snapshot,omitempty"`
	TTL          time.Duration     `json:"ttl_ns,omitempty"`
	Idle         time.Duration     `json:"idle_ns,omitempty"`
	// Paused is since when programs stand still; nil where the session isn't paused.
	Paused *time.Time `json:"paused_at,omitempty"`
	// Limits are what was asked, whether it holds and by what. Before the first
	// program only those of the workspace do.
	Limits []sandbox.LimitState `json:"limits"`
	// Snapshots is what they take of the host's disk; nil where that isn't known.
	Snapshots *snapshot.Usage `json:"snapshots,omitempty"`
	Sandbox   *sandbox.Info   `json:"sandbox,omitempty"`
	// Egress is what programs may connect to; nil without a rule.
	Egress *Egress `json:"egress,omitempty"`
	// Services are those of [SessionOptions.Services].
	Services []sandbox.CompanionState `json:"services,omitempty"`
	Gaps     []string                 `json:"gaps,omitempty"`
}
