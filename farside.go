package wisbox

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// ServeFar is the other end of [Options.Far]: it serves one client until the stream or ctx ends. The client can do
// everything with sessions that the user of this process can. `wisbox __relay` calls it after ssh has authenticated the
// client. The Manager needs [Options.Holder].
func (m *Manager) ServeFar(ctx context.Context, stream io.ReadWriteCloser) error {
	if m.here == nil || len(m.opts.Holder) == 0 {
		return tool.Errorf(tool.Unsupported, "a relay needs sessions of its own machine, and a command that holds them")
	}
	return far.Serve(ctx, stream, m.hello(), func(ctx context.Context, c net.Conn) { hold.ServeConn(ctx, c, relayed{m}) })
}

// relayed is a Manager for a client on another machine. Every session that it opens is kept and
// has a holder: the connection may break at any time.
type relayed struct{ m *Manager }

// Do implements hold.Session.
func (r relayed) Do(ctx context.Context, req hold.Request, io hold.Streams) (*hold.Answer, error) {
	if req.Session == "" {
		return r.place(ctx, req, io)
	}
	s, err := r.m.Attach(ctx, req.Session)
	if err != nil {
		return nil, err
	}
	answer, err := (&served{s: s}).Do(ctx, req, io)
	return answer, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

// Start implements hold.Session.
func (r relayed) Start(ctx context.Context, req hold.Request, io hold.Streams) (sandbox.Process, error) {
	s, err := r.m.Attach(ctx, req.Session)
	if err != nil {
		return nil, err
	}
	var p sandbox.Process
	if req.Op == portOp {
		p, err = dialFor(ctx, s, req, io)
	} else {
		p, err = (&served{s: s}).Start(ctx, req, io)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return holding(s, p), nil
}

// holding keeps the session's handle open until the program has ended. Its Wait is called once.
func holding(s *Session, p sandbox.Process) sandbox.Process {
	return sandbox.OnEnd(p, func(ctx context.Context, res sandbox.Result, err error) (sandbox.Result, error) {
		return res, errors.Join(err, s.Close(ctx))
	})
}

// Busy implements hold.Session.
func (relayed) Busy() bool { return true }

// Empty implements hold.Session.
func (relayed) Empty(context.Context) error { return nil }

// portOp connects the operation's streams to a program's port.
const portOp = "port"

func dialFor(ctx context.Context, s *Session, req hold.Request, io hold.Streams) (sandbox.Process, error) {
	var o dialOp
	if err := json.Unmarshal(req.Args, &o); err != nil || io.Stdin == nil || io.Stdout == nil {
		return nil, errUnreadable(portOp, err)
	}
	conn, err := s.Dial(ctx, o.Port)
	if err != nil {
		return nil, err
	}
	return far.Pass(conn, io.Stdin, io.Stdout), nil
}

// place performs an operation on the place rather than in a running session.
func (r relayed) place(ctx context.Context, req hold.Request, io hold.Streams) (*hold.Answer, error) {
	s, ok := specByName[req.Op]
	if !ok || s.place == nil {
		return nil, errUnknownOperation(req.Op)
	}
	answer, err := s.place(ctx, r.m, req.Args, io)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(answer)
	return &hold.Answer{Value: raw}, err
}

// farOptions are a session's options on the wire.
type farOptions struct {
	SessionOptions
	Name string `json:"name,omitempty" tenant:"checked"`
	Pull Pull   `json:"pull,omitempty" tenant:"checked"`
	// Values are the values of secrets.
	Values map[string][]byte `json:"values,omitempty" tenant:"checked"`
}

func (o *farOptions) options() *SessionOptions {
	opts := o.SessionOptions
	opts.Name, opts.Pull, opts.Kept = o.Name, o.Pull, true
	opts.Secrets = map[string]Secret{}
	for name, value := range o.Values {
		opts.Secrets[name] = Secret{Value: value}
	}
	return &opts
}

// farSession is the description of a session for its client.
type farSession struct {
	Options farOptions    `json:"options"`
	Created overlay.Stamp `json:"created"`
	Left    []string      `json:"left,omitempty"` // of an archive's settings
}

func describe(s *Session) farSession {
	out := farSession{Options: farOptions{SessionOptions: s.opts, Name: s.ID()}, Created: s.at.created()}
	out.Options.Secrets = named(s.opts.Secrets)
	return out
}

// Arguments of the operations on a place.
type (
	named1     struct{ Name string } // a session, a template
	openArgs   struct{ Options farOptions }
	renameArgs struct{ Name, To string }
	fillArgs   struct{ Name string }
	loadArgs   struct {
		Options      *farOptions
		Name         string
		WithSettings bool
	}
	forkArgs struct {
		Name, To string
		N        int
		Idle     time.Duration
	}
	lookArgs struct {
		Name string
		far.Look
	}
	watchArgs    struct{ Name, Path string }
	templateArgs struct{ Ref, Owner string }
	logArgs      struct {
		Name        string
		Connections bool
	}
	nothing struct{}
)

type placeDo func(ctx context.Context, m *Manager, raw json.RawMessage, io hold.Streams) (any, error)

func placeOp[A any](do func(ctx context.Context, m *Manager, a A, io hold.Streams) (any, error)) placeDo {
	return func(ctx context.Context, m *Manager, raw json.RawMessage, io hold.Streams) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, tool.Errorf(tool.Invalid, "the arguments can't be read").Because(err)
		}
		return do(ctx, m, a, io)
	}
}

// leave describes a new session, and closes its handle.
func leave(ctx context.Context, s *Session) (farSession, error) {
	return describe(s), s.Close(context.WithoutCancel(ctx))
}

// openFor creates a session. Its mounts come as one tar stream.
func openFor(ctx context.Context, m *Manager, a openArgs, io hold.Streams) (any, error) {
	o := a.Options.options()
	if report := tool.Progress(ctx); report != nil {
		o.OnPull = func(p PullProgress) {
			if raw, err := json.Marshal(p); err == nil {
				report(string(raw))
			}
		}
	}
	if len(o.Mounts) > 0 && o.MountsFrom == "" {
		return nil, tool.Errorf(tool.Invalid, "a client on another machine can't mount files of this one; leave mounts out").In("mounts")
	}
	o.packed = io.Stdin
	s, err := m.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return leave(ctx, s)
}

func loadFor(ctx context.Context, m *Manager, a loadArgs, io hold.Streams) (any, error) {
	var left []string
	o := &LoadOptions{Name: a.Name, Kept: true, WithSettings: a.WithSettings, OnLeftOut: func(names []string) { left = names }}
	if a.Options != nil {
		o.Settings = a.Options.options()
	}
	s, err := m.Load(ctx, io.Stdin, o)
	if err != nil {
		return nil, err
	}
	out, err := leave(ctx, s)
	out.Left = left
	return out, err
}

func forkFor(ctx context.Context, m *Manager, a forkArgs, _ hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	all, err := s.fork(ctx, a.N, CloneOptions{Name: a.To, Kept: true, idle: a.Idle})
	if err != nil {
		return nil, err
	}
	made := make([]farSession, len(all))
	for i, c := range all {
		var failed error
		made[i], failed = leave(ctx, c)
		err = errors.Join(err, failed)
	}
	return made, err
}

// fillFor adds mounts to an existing session, after a reset or for a clone.
func fillFor(ctx context.Context, m *Manager, a fillArgs, io hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	return nothing{}, s.at.fill(ctx, io.Stdin)
}

// wholeImport imports a stream completely, or fails.
func wholeImport(ctx context.Context, files *vfs.FS, stream io.Reader) error {
	done, err := files.Import(ctx, stream, "")
	if err == nil && len(done.Skipped) > 0 {
		err = tool.Errorf(tool.Invalid, "the mounts can't be copied: %q %s", clip.Text(done.Skipped[0].Name), done.Skipped[0].Reason).In("mounts")
	}
	return err
}

func attachFor(ctx context.Context, m *Manager, a named1, _ hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	return leave(ctx, s)
}

// lookFor answers without starting the session's holder.
func lookFor(ctx context.Context, m *Manager, a lookArgs, io hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	return s.at.look(ctx, a.Look, io.Stdout)
}

// watchFor writes each change as a line of JSON, and an empty line once it watches.
func watchFor(ctx context.Context, m *Manager, a watchArgs, io hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	changes, err := s.Watch(ctx, a.Path)
	if err != nil {
		return nil, err
	}
	out := json.NewEncoder(io.Stdout)
	if _, err := io.Stdout.Write([]byte("\n")); err != nil {
		return nil, err
	}
	for c := range changes {
		if err := out.Encode(c); err != nil {
			return nil, err
		}
	}
	return nothing{}, nil
}

func logFor(ctx context.Context, m *Manager, a logArgs, io hold.Streams) (any, error) {
	out := bufio.NewWriter(io.Stdout)
	err := m.Log(ctx, a.Name, a.Connections, func(line []byte) error {
		_, err := out.Write(append(bytes.Clone(line), '\n'))
		return err
	})
	return nothing{}, errors.Join(err, out.Flush())
}

func listFor(ctx context.Context, m *Manager, _ nothing, _ hold.Streams) (any, error) {
	return m.List(ctx)
}

func stopFor(ctx context.Context, m *Manager, a named1, _ hold.Streams) (any, error) {
	return nothing{}, m.Stop(ctx, a.Name)
}

func removeFor(ctx context.Context, m *Manager, a named1, _ hold.Streams) (any, error) {
	return nothing{}, m.Remove(ctx, a.Name)
}

func renameFor(ctx context.Context, m *Manager, a renameArgs, _ hold.Streams) (any, error) {
	return nothing{}, m.Rename(ctx, a.Name, a.To)
}

func templatesFor(_ context.Context, m *Manager, _ nothing, _ hold.Streams) (any, error) {
	return m.Templates()
}

func findTemplateFor(_ context.Context, m *Manager, a templateArgs, _ hold.Streams) (any, error) {
	return m.FindTemplate(a.Ref, a.Owner)
}

func removeTemplateFor(ctx context.Context, m *Manager, a named1, _ hold.Streams) (any, error) {
	return nothing{}, m.RemoveTemplate(ctx, a.Name)
}

func touchFor(ctx context.Context, m *Manager, a named1, _ hold.Streams) (any, error) {
	s, err := m.Attach(ctx, a.Name)
	if err != nil {
		return nil, err
	}
	return nothing{}, errors.Join(s.at.renew(ctx), s.Close(context.WithoutCancel(ctx)))
}
