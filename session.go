package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// Session is one workspace and the tools over it. Its methods may be called
// from many goroutines at once: programs run side by side, only changes of
// files by tools wait for each other. After Close every call is closed.
type Session struct {
	*work
	m    *Manager
	opts SessionOptions

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// work is what the handles on one session share, see [Session.Clone].
type work struct {
	dir     *overlay.Dir
	handles atomic.Int32
	turn    chan struct{} // see [Session.takeTurn]
	steps   atomic.Int64  // that this process has made

	// gate is held for reading by every call, and taken to replace what follows.
	gate sync.RWMutex
	vfs  *vfs.FS
	host host
	life context.Context // ends the calls under way when the session is reset
	stop context.CancelCauseFunc
}

// join holds what the session works with for one call, until leave.
func (w *work) join(ctx context.Context) (_ context.Context, leave func()) {
	w.gate.RLock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(w.life, func() { cancel(context.Cause(w.life)) })
	return ctx, func() { stop(); cancel(nil); w.gate.RUnlock() }
}

// files is the workspace as the tools see it now.
func (w *work) files() *vfs.FS {
	w.gate.RLock()
	defer w.gate.RUnlock()
	return w.vfs
}

// host does a session's work: in this process ([local]), or in the process that
// holds a kept session ([remote]).
type host interface {
	tools() *tool.Set
	call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)
	run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error)
	start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error)
	setSecrets(ctx context.Context, all map[string]Secret) error
	// clean takes the secrets out of what is logged and of an error's text.
	clean(event Event, err error) (Event, error)
	inspect(ctx context.Context) (*Inspection, error)
	// snapshots are the session's own store of them.
	store() (*snapshot.Store, error)
	// reset gives the session an empty workspace and no programs.
	reset(ctx context.Context) (*vfs.FS, error)
	// records tells whether this process writes the session's log.
	records() bool
	// close ends the host; the sandbox goes too unless keep is set.
	close(ctx context.Context, keep bool) error
}

func (m *Manager) newSession(dir *overlay.Dir, opts SessionOptions, files *vfs.FS, h host) (*Session, error) {
	w := &work{dir: dir, vfs: files, host: h, turn: newTurn()}
	w.life, w.stop = context.WithCancelCause(m.ctx)
	return m.newHandle(w, opts)
}

// newHandle is one more session over the same work.
func (m *Manager) newHandle(w *work, opts SessionOptions) (*Session, error) {
	opts.Secrets = named(opts.Secrets)
	s := &Session{work: w, m: m, opts: opts}
	s.ctx, s.cancel = context.WithCancel(m.ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, tool.Errorf(tool.Closed, "the manager is closed")
	}
	m.open[s] = struct{}{}
	m.opened++
	w.handles.Add(1)
	return s, nil
}

// ID names the session.
func (s *Session) ID() string { return s.dir.ID() }

// Options are what the session was opened with, defaults filled in.
func (s *Session) Options() SessionOptions { return s.opts }

// Tools are the session's tools.
func (s *Session) Tools() *tool.Set {
	s.gate.RLock()
	defer s.gate.RUnlock()
	return s.host.tools()
}

// WorkspacePath is the host directory that programs see as /workspace. A
// program may change it at any time, links included: use [Session.Files] or the
// tools to read it.
func (s *Session) WorkspacePath() string { return s.dir.WorkspacePath() }

// Files is the workspace as a read-only file system that can't be left.
func (s *Session) Files() fs.FS { return s.files().FS() }

// Import unpacks a tar stream below a directory of the workspace, see
// [vfs.FS.Import]: it can't write elsewhere, whatever the stream says.
func (s *Session) Import(ctx context.Context, stream io.Reader, dest string) (*vfs.Transfer, error) {
	event := Event{Tool: "import", Path: clip(dest)}
	return observe(ctx, s, event, func(ctx context.Context) (*vfs.Transfer, *tool.Result, error) {
		if err := s.dir.Room(ctx); err != nil {
			return nil, nil, err
		}
		var done *vfs.Transfer
		res, err := callOf(ctx).change(ctx, byTools, func(ctx context.Context) (_ *tool.Result, err error) {
			done, err = s.vfs.Import(ctx, stream, dest)
			return &tool.Result{Changes: []tool.Change{{Path: clip(dest)}}}, err
		})
		return done, res, err
	})
}

// Export writes a file or directory of the workspace as a tar stream that
// unpacks nowhere else, see [vfs.FS.Export].
func (s *Session) Export(ctx context.Context, path string, w io.Writer) (*vfs.Transfer, error) {
	event := Event{Tool: "export", Path: clip(path)}
	return observe(ctx, s, event, func(ctx context.Context) (*vfs.Transfer, *tool.Result, error) {
		done, err := s.vfs.Export(ctx, path, w)
		return done, &tool.Result{}, err
	})
}

// Watch tells of changes below a directory of the workspace, by tools and by
// programs, until ctx ends or the session is closed, see [vfs.FS.Watch].
func (s *Session) Watch(ctx context.Context, path string) (<-chan vfs.Change, error) {
	return s.files().Watch(ctx, path)
}

// Call runs a tool by name with the JSON object of its arguments. Every error
// is a *tool.Error. ctx's end kills what the call started.
func (s *Session) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	event := Event{Tool: clip(name)}
	event.describe(raw)
	return observe(ctx, s, event, func(ctx context.Context) (*tool.Result, *tool.Result, error) {
		res, err := s.host.call(ctx, name, raw)
		return res, res, err
	})
}

// Run runs one program with the caller's own streams and without the bounds of
// shell_execute: no cap on output, no time limit but cmd.Timeout.
func (s *Session) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	return observe(ctx, s, Event{Tool: "run", Args: argsOf(cmd)}, func(ctx context.Context) (sandbox.Result, *tool.Result, error) {
		dir, err := vfs.ParsePath(cmd.Dir)
		if err != nil {
			return sandbox.Result{}, nil, err
		}
		cmd.Dir = dir
		res, err := s.host.run(ctx, cmd)
		callOf(ctx).streamed = int(res.Stdout.Bytes + res.Stderr.Bytes)
		return res, &tool.Result{Failed: err == nil && res.Status != sandbox.StatusExited, Verdict: string(res.Status)}, err
	})
}

// Start begins a program and returns: it lives until it ends, is killed, or the
// session is closed. With cmd.TTY it is what a terminal needs.
func (s *Session) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	return observe(ctx, s, Event{Tool: "start", Args: argsOf(cmd)}, func(ctx context.Context) (sandbox.Process, *tool.Result, error) {
		dir, err := vfs.ParsePath(cmd.Dir)
		if err != nil {
			return nil, nil, err
		}
		cmd.Dir = dir
		p, err := s.host.start(ctx, cmd)
		return p, &tool.Result{}, err
	})
}

// observe runs one call inside the session and records it.
func observe[T any](ctx context.Context, s *Session, event Event, do func(context.Context) (T, *tool.Result, error)) (T, error) {
	var none T
	ctx, done, err := s.enter(ctx)
	if err != nil {
		return none, err
	}
	defer done()
	return recorded(ctx, s, event, func(ctx context.Context) (T, *tool.Result, error) {
		ctx, leave := s.join(ctx)
		defer leave()
		return do(ctx)
	})
}

// recorded makes an event of what a call did.
func recorded[T any](ctx context.Context, s *Session, event Event, do func(context.Context) (T, *tool.Result, error)) (T, error) {
	s.dir.Touch()
	began := time.Now()
	c := newCall(ctx, s, event.Tool)
	event.Time, event.Session, event.Call, event.Caller = began.UTC(), s.ID(), c.id, callerOf(ctx)
	ctx, span := startSpan(context.WithValue(ctx, callKey{}, c), event.Tool, attribute.String("wisbox.session", event.Session), attribute.String("wisbox.call", event.Call))
	out, res, err := do(ctx)
	event.finish(res, err, began)
	event.Effects = c.effects()
	event.ResultSize += c.streamed
	event, err = s.host.clean(event, err)
	s.record(event, err)
	endSpan(span, event)
	if err != nil {
		return out, tool.AsError(err)
	}
	return out, nil
}

// enter begins a call: its context ends with the caller's and with the session.
func (s *Session) enter(ctx context.Context) (context.Context, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, tool.Errorf(tool.Closed, "the session is closed; open another one")
	}
	s.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(nil); s.calls.Done() }, nil
}

// record writes the call to the session's log and tells the embedder. A log
// that can't be written doesn't fail the call: its work is done.
func (s *Session) record(event Event, err error) {
	if s.host.records() || ownCalls[event.Tool] {
		if err := s.dir.AppendLog(event); err != nil {
			s.m.log.Warn("append to the session's log", "session", s.ID(), "error", err)
		}
	}
	if cause := errors.Unwrap(err); cause != nil {
		s.m.log.Info("call", "session", s.ID(), "tool", event.Tool, "outcome", event.Outcome, "cause", cause)
	}
	if s.m.opts.Meter != nil {
		s.m.opts.Meter.Call(event)
	}
	if s.opts.OnEvent != nil {
		s.opts.OnEvent(event)
	} else if s.m.opts.OnEvent != nil {
		s.m.opts.OnEvent(event)
	}
}

// ownCalls are those in which a holder has no part: this process records them.
var ownCalls = map[string]bool{"import": true, "export": true, "clone": true, "undo": true, "snapshot_remove": true, "save": true}

// Close ends the session: calls in flight are cancelled, programs killed. An
// ephemeral session goes with its container, files and all; a kept one stays
// for the next client. Of several handles ([Session.Clone]) the last one does
// that. A second Close does nothing.
func (s *Session) Close(ctx context.Context) error { return s.end(ctx, s.opts.Kept) }

// end closes the session once; keepSandbox leaves the container for others.
func (s *Session) end(ctx context.Context, keepSandbox bool) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.m.forget(s)
	s.cancel()
	s.calls.Wait()
	if s.handles.Add(-1) > 0 {
		return nil
	}
	errs := []error{s.host.close(ctx, keepSandbox), s.vfs.Close(), s.dir.Close()}
	if !s.opts.Kept {
		errs = append(errs, s.m.Remove(ctx, s.ID()))
	}
	return errors.Join(errs...)
}

// Inspection is what `wisbox session inspect` shows.
type Inspection struct {
	ID        string    `json:"id"`
	Kept      bool      `json:"kept"`
	State     string    `json:"state"`
	Created   time.Time `json:"created_at"`
	Image     string    `json:"image"`
	Workspace string    `json:"workspace"`
	// Limits are what was asked, whether it holds and by what. Before the first
	// program only those of the workspace do.
	Limits  []sandbox.LimitState `json:"limits"`
	Sandbox *sandbox.Info        `json:"sandbox,omitempty"`
	Gaps    []string             `json:"gaps,omitempty"`
}

// Inspect tells what the session is and which limits its sandbox enforces. It
// opens a running sandbox, but makes none: Sandbox is nil before the first program.
func (s *Session) Inspect(ctx context.Context) (*Inspection, error) {
	ctx, done, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, leave := s.join(ctx)
	defer leave()
	return s.host.inspect(ctx)
}
