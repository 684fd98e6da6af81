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
	"github.com/wisbox/wisbox/internal/steps"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Event is the record of one call: a line of the session's log.jsonl, and the argument of
// [Options.OnEvent]. It has no content, no environment, no code and no value of a secret.
type Event = journal.Event

// Effects are a call's changes of the workspace. They always include changes by tools, and those by
// programs if [SessionOptions.AutoSnapshot] is set.
type Effects = journal.Effects

// Undone is the result of [Session.Undo].
type Undone = steps.Undone

// Step is a state to which [Session.Undo] can return.
type Step = steps.Step

// WithCaller returns a context with the name of the caller, in at most 300 bytes: a user, an agent,
// a client. The default is the process, such as wisbox[1234].
func WithCaller(ctx context.Context, who string) context.Context {
	return tool.WithCaller(ctx, who)
}

// Session is one workspace and the tools over it. Its methods may be called from many goroutines at
// once: programs run side by side; only changes of files by tools wait for each other. After Close,
// every call returns an error of kind closed.
type Session struct {
	*shared
	m     *Manager
	opts  SessionOptions
	calls *gate.Gate
	extra *tool.Set // the embedder's own tools
}

// shared is the common state of the handles on one session, see [Session.Clone].
type shared struct {
	at         site
	handles    atomic.Int32   // -1 when the last one is closed
	busy       sync.WaitGroup // handles whose calls aren't over
	generation *gate.Generation
	exec       executor
	remove     func(context.Context) error // as of opened
}

// executor performs a session's operations: in this process ([local]), or in the process that holds
// a kept session ([held]).
type executor interface {
	do(ctx context.Context, c journal.Call, op operation, io hold.Streams) (answer any, out journal.Outcome, err error)
	start(ctx context.Context, c journal.Call, op starter, io hold.Streams) (sandbox.Process, journal.Outcome, error)
	// record writes the call to the session's log, unless another process does, and redacts secrets
	// in the caller's copy. ours means that only this process knows the call.
	record(event Event, err error, ours bool) (Event, error)
	// steady keeps the session from being paused until unlock; if it is paused, steady returns an
	// error.
	steady(ctx context.Context) (unlock func(), err error)
	// reset empties the session. It calls replace once, to end the running calls and, while none runs, call
	// renew, whose answer is the new workspace for the tools. Before that, an error changes nothing.
	reset(ctx context.Context, c journal.Call, replace func(renew func() (any, error)) error) error
	// letGo is called before the wait for calls: those of a paused session can't end, so letGo
	// gives up its sandbox, which stays if keep is set.
	letGo(ctx context.Context, keep bool) error
	// close ends the executor and, unless keep is set, the sandbox.
	close(ctx context.Context, keep bool) error
}

func (m *Manager) newSession(o *opened) (*Session, error) {
	w := &shared{at: o.at, exec: o.exec, remove: o.remove, generation: gate.NewGeneration(m.ctx)}
	s, err := m.newHandle(w, o.opts)
	if err != nil {
		return nil, err
	}
	if !m.open.Add(s) { // the creator of o closes it
		return nil, errManagerClosed
	}
	return s, nil
}

var errManagerClosed = tool.Errorf(tool.Closed, "the manager is closed")

// newHandle returns another handle on the same session, which the Manager doesn't know yet.
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

// leave removes a handle that join added, and reports whether it was the last one.
func (w *shared) leave() (last bool) {
	return w.handles.Add(-1) == 0 && w.handles.CompareAndSwap(0, -1)
}

// ID returns the session's name.
func (s *Session) ID() string { return s.at.ID() }

// Options returns the session's options, with defaults filled in.
func (s *Session) Options() SessionOptions { return s.opts }

// WorkspacePath returns the host directory that programs see as /workspace. Programs may change it
// at any time, including its links: use [Session.Files] or the tools to read it.
func (s *Session) WorkspacePath() string { return s.at.WorkspacePath() }

// Files returns the workspace as a read-only file system that can't be escaped.
func (s *Session) Files() fs.FS { return s.at.Files() }

// Watch reports changes below a directory of the workspace, by tools and by
// programs, until ctx ends or the session is closed, see [vfs.FS.Watch].
func (s *Session) Watch(ctx context.Context, path string) (<-chan vfs.Change, error) {
	return s.at.Watch(ctx, path)
}

// Call runs a tool by its name in the session's profile with the JSON object of its
// arguments. Every error is a *tool.Error. If ctx ends, programs of the call are killed.
func (s *Session) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	if t, ok := s.lookupExtra(name); ok {
		return s.callExtra(ctx, t, raw)
	}
	return perform[*tool.Result](ctx, s, callOp{Tool: name, Args: string(raw)}, hold.Streams{})
}

// CallOwn is like Call, but always uses wisbox's own tools, with their names and shapes, whatever
// the session's profile and its embedder's tools are.
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

// Start starts a program and returns. The program runs until it ends, is killed, or the session is
// closed. With cmd.TTY it is fit for a terminal. Its end is logged. For a program that outlives its
// caller see [Session.StartProcess].
func (s *Session) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	op, err := programOf(cmd)
	if err != nil {
		return nil, err
	}
	return s.start(ctx, startOp{program: op}, streamsOf(cmd), "")
}

func (s *Session) start(ctx context.Context, op starter, io hold.Streams, call string) (sandbox.Process, error) {
	answer, _, err := s.observe(ctx, record{event: eventOf(op), id: call}, func(ctx context.Context, c journal.Call) (any, journal.Outcome, error) {
		return s.exec.start(ctx, c, op, io)
	})
	if err != nil {
		return nil, err
	}
	return answer.(sandbox.Process), nil
}

// Inside returns the files of the session's sandbox, at any path, with the rights of its programs;
// if there is no sandbox, it is created. Its errors are [*tool.Error]s that wrap those of
// [sandbox.FileSystem]. Operations that read or change content are recorded, for example as
// inside_write; listing and watching are not. Content isn't redacted.
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
	return s.ExportWith(ctx, path, w, nil)
}

// ExportWith is Export with options, see [vfs.FS.ExportWith].
func (s *Session) ExportWith(ctx context.Context, path string, w io.Writer, opts *vfs.ExportOptions) (*vfs.Transfer, error) {
	op := exportOp{Path: path}
	if opts != nil {
		op.Sparse, op.LeaveOut = opts.Sparse, opts.LeaveOut
	}
	out := &counter{w: w}
	done, err := perform[*vfs.Transfer](ctx, s, op, hold.Streams{Stdout: out})
	return done, cmp.Or(err, out.failed("the copy"))
}

// Undo restores the workspace to its state before a call: the call with the given ID, in which case
// all later calls are undone too, or the last one that changed more than by-products of programs
// (caches, git's index). The call must have a step ([SessionOptions.AutoSnapshot]); otherwise the
// error is not_found. The state before the undo stays as a snapshot.
func (s *Session) Undo(ctx context.Context, call string) (*Undone, error) {
	return perform[*Undone](ctx, s, undoOp{Step: call}, hold.Streams{})
}

// Steps returns the last calls that [Session.Undo] can undo, at most n (default and maximum 20),
// the latest first. To find the changes, it scans the whole workspace for each step.
func (s *Session) Steps(ctx context.Context, n int) ([]Step, error) {
	return perform[[]Step](ctx, s, stepsOp{N: n}, hold.Streams{})
}

// RemoveSnapshots deletes snapshots and frees the disk space that no other snapshot needs.
func (s *Session) RemoveSnapshots(ctx context.Context, ids ...string) error {
	_, err := perform[struct{}](ctx, s, removeSnapshotsOp{IDs: ids}, hold.Streams{})
	return err
}

// Save writes an archive of the session: its current workspace, its snapshots, its Lisp definitions
// and its settings. The settings include the variables of its programs, so protect the archive like
// these. [Manager.Load] creates a session from it, here or on another machine. Programs and the
// state of interpreters are not in it.
func (s *Session) Save(ctx context.Context, w io.Writer) (snapshot.Info, error) {
	out := &counter{w: w}
	info, err := perform[snapshot.Info](ctx, s, saveOp{}, hold.Streams{Stdout: out})
	return info, cmp.Or(err, out.failed("the archive"))
}

// SetSecrets adds secrets to the session, or replaces those with the same names, for programs that
// start afterwards. A kept session's holder keeps values without a file in memory, and therefore
// doesn't end when it has no clients.
func (s *Session) SetSecrets(ctx context.Context, all map[string]Secret) error {
	secrets := inner(all)
	if err := box.CheckSecrets(secrets); err != nil {
		return err
	}
	_, err := perform[struct{}](ctx, s, secretsOp{Secrets: secrets}, hold.Streams{})
	return err
}

// SetLimits changes the limits of a session that stays: those that aren't zero. CPUs, Memory and PIDs change at
// once, also for running programs; Disk and Inodes do where the session's disk permits it. The others are those
// of a container, and change only if there is none. The limits
// are recorded with the session. An error changes nothing, and names the limit that can't change.
func (s *Session) SetLimits(ctx context.Context, change sandbox.Limits) (*Inspection, error) {
	return perform[*Inspection](ctx, s, limitsOp{change}, hold.Streams{})
}

// Inspect describes the session and the limits that its sandbox enforces. It opens a running
// sandbox, but creates none: Sandbox is nil before the first program.
func (s *Session) Inspect(ctx context.Context) (*Inspection, error) {
	return perform[*Inspection](ctx, s, inspectOp{}, hold.Streams{})
}

var errClosed = tool.Errorf(tool.Closed, "the session is closed; open another one")

var errReset = tool.Errorf(tool.Closed, "the session was reset during the call")

// Reset empties the session: it ends running calls, programs and interpreters. The next call starts
// with a new workspace into which the mounts were copied again. Snapshots and the log stay, and an
// automatic snapshot "before reset" has the files that were there. If the mounts can't be copied, the
// error changes nothing. Reset applies to all handles on the session. After an error it may be called again.
func (s *Session) Reset(ctx context.Context) error {
	paused := s.at.awake() // must come first: running calls would be cancelled
	_, _, err := s.observeAlone(ctx, record{event: eventOf(resetOp{}), ours: paused != nil}, func(ctx context.Context, c journal.Call) (answer any, out journal.Outcome, err error) {
		if paused != nil {
			return nil, out, paused
		}
		unlock, err := s.exec.steady(ctx)
		if tool.KindOf(err) == tool.Busy && s.at.awake() == nil { // held by e.g. a snapshot, which ends with the other calls
			s.generation.End(ctx, errReset)
			unlock, err = s.exec.steady(ctx)
		}
		if err != nil {
			return nil, out, err
		}
		defer unlock()
		return nil, out, s.exec.reset(ctx, c, func(renew func() (any, error)) error {
			return s.generation.Replace(ctx, errReset, func() error {
				files, err := renew()
				return errors.Join(err, s.at.renewed(files))
			})
		})
	})
	return err
}

// perform makes the executor perform one operation in the session, and records it.
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

// perform performs the call with that id; "" makes a new id.
func (s *Session) perform(ctx context.Context, op operation, io hold.Streams, call string) (any, journal.Outcome, error) {
	return s.observe(ctx, record{event: eventOf(op), id: call}, func(ctx context.Context, c journal.Call) (any, journal.Outcome, error) {
		return s.exec.do(ctx, c, op, io)
	})
}

type action func(context.Context, journal.Call) (any, journal.Outcome, error)

// record is the part of a call's record that is known before the call.
type record struct {
	event Event  // an event without a tool isn't recorded
	id    string // "" makes a new id
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

// observeAlone is like observe, for operations that replace the workspace or the sandbox of other
// calls.
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
	s.at.Touch()
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

// asToolError returns err as a *tool.Error, and nil for nil.
func asToolError(err error) error {
	if err == nil {
		return nil
	}
	return tool.AsError(err)
}

// tell passes the event to the embedder.
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

// endSpan ends a call's span with the data of its event.
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

// Close ends the session: it cancels running calls and kills programs. It removes an ephemeral
// session with its container and files; a kept session stays for the next client. If there are
// several handles ([Session.Clone]), the last Close does that; Close of another handle of a paused
// session doesn't wait for its calls. A second Close does nothing.
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
	errs = append(errs, s.exec.close(ctx, keepSandbox), s.at.Close())
	if !s.opts.Kept {
		errs = append(errs, s.m.discard(ctx, s.remove, s.ID()))
	}
	return errors.Join(errs...)
}

// pauseLook is the interval at which a handle whose calls don't end checks for a pause.
const pauseLook = 100 * time.Millisecond

// awaitCalls waits for the calls of a handle. If the session is paused, it doesn't: they end with
// the last handle, or after the resume.
func (s *Session) awaitCalls(over <-chan struct{}) {
	look := time.NewTicker(pauseLook)
	defer look.Stop()
	for s.at.awake() == nil {
		select {
		case <-over:
			return
		case <-look.C:
		}
	}
}

// Usage is a session's resource usage at one moment, see [Session.Usage].
type Usage struct {
	Running bool           `json:"running"` // it has a container
	Limits  sandbox.Limits `json:"limits"`
	Disk    int64          `json:"disk_bytes"` // of the workspace; 0 also if it isn't counted
	Inodes  int64          `json:"inodes"`
	// Gauge is the container's usage; nil if there is no container, or if it isn't counted.
	Gauge *sandbox.Gauge `json:"container,omitempty"`
	// Problem explains why it is unknown whether there is a container.
	Problem string `json:"problem,omitempty"`
}

// Usage returns the session's current usage. It starts nothing and leaves no record.
func (s *Session) Usage(ctx context.Context) (*Usage, error) {
	return perform[*Usage](ctx, s, usageOp{}, hold.Streams{})
}

// Inspection is the content of `wisbox inspect`.
type Inspection struct {
	ID        string    `json:"id"`
	Kept      bool      `json:"kept"`
	State     string    `json:"state"` // ready, paused
	Created   time.Time `json:"created_at"`
	Image     string    `json:"image"`
	Workspace string    `json:"workspace"`
	Profile   string    `json:"profile,omitempty"` // the session's profile at its creation
	// The other settings at its creation; for variables and secrets, the names.
	Mounts       []hostmount.Mount `json:"mounts,omitempty"`
	Env          []string          `json:"env,omitempty"`
	Secrets      []string          `json:"secrets,omitempty"`
	Paths        vfs.Grammar       `json:"paths,omitempty"` // as [SessionOptions.Paths]
	AutoSnapshot bool              `json:"auto_snapshot,omitempty"`
	TTL          time.Duration     `json:"ttl_ns,omitempty"`
	Idle         time.Duration     `json:"idle_ns,omitempty"`
	// Paused is the time since when programs are frozen; nil if the session isn't paused.
	Paused *time.Time `json:"paused_at,omitempty"`
	// Limits are the requested limits, and whether and by what they are enforced. Before the first
	// program, only the limits of the workspace are.
	Limits []sandbox.LimitState `json:"limits"`
	// Snapshots is the disk space of the snapshots; nil if unknown.
	Snapshots *snapshot.Usage `json:"snapshots,omitempty"`
	Sandbox   *sandbox.Info   `json:"sandbox,omitempty"`
	// Egress has the rules and traffic of connections; nil without a rule.
	Egress *Egress `json:"egress,omitempty"`
	// Services are those of [SessionOptions.Services].
	Services []sandbox.CompanionState `json:"services,omitempty"`
	Gaps     []string                 `json:"gaps,omitempty"`
}
