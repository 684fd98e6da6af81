package wisbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/holdwire"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/snapshot"
	"github.com/wisbox/wisbox/tool"
)

// remote is a session whose holder is another process. Each operation has a
// connection of its own; a lost one is unavailable, and the next operation
// starts the holder again.
type remote struct {
	dial  func(ctx context.Context) (*holdwire.Conn, error)
	held  func(ctx context.Context) bool // the holder runs
	about func() *Inspection             // what is known without it
	dir   *overlay.Dir
	opts  SessionOptions

	mu        sync.Mutex
	snapshots *snapshot.Store // opened when it is needed
}

func (r *remote) tools() *tool.Set { return ToolSet() }
func (r *remote) records() bool    { return false }

func (r *remote) close(context.Context, bool) error { return r.closeStore() }

var errHolderLost = tool.Errorf(tool.Unavailable,
	"the process that holds this session ended during the call; its programs, kept interpreters and their state are lost, files are not; call again")

// hangUp is how long a cancelled operation has to say how far it came.
const hangUp = 2 * time.Second

// begin opens an operation. The returned function ends it.
func (r *remote) begin(ctx context.Context, req request) (*holdwire.Conn, func(), error) {
	req.By, req.Trace = callerOf(ctx), traceOf(ctx)
	c, err := r.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := c.SendJSON(holdwire.Request, req); err != nil {
		_ = c.Close()
		return nil, nil, errHolderLost
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Send(holdwire.Kill, nil)
		time.AfterFunc(hangUp, func() { _ = c.Close() })
	})
	return c, func() { stop(); _ = c.Close() }, nil
}

// ask does an operation that is one request and one answer.
func (r *remote) ask(ctx context.Context, req request, answer any) error {
	c, done, err := r.begin(ctx, req)
	if err != nil {
		return err
	}
	defer done()
	for {
		kind, raw, err := c.Receive()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return errHolderLost
		case kind == holdwire.Failure:
			return failure(raw)
		case kind == holdwire.Progress:
			if report := tool.Progress(ctx); report != nil {
				report(string(raw))
			}
		default:
			return json.Unmarshal(raw, answer)
		}
	}
}

func failure(raw []byte) error {
	e := &tool.Error{}
	if err := json.Unmarshal(raw, e); err != nil {
		return err
	}
	return e
}

func (r *remote) call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	if err := checkArguments(args); err != nil {
		return nil, err
	}
	var w wireResult
	c := callOf(ctx)
	req := request{Op: "call", Call: c.id, Tool: name, Args: args, Progress: tool.Progress(ctx) != nil, Polling: tool.Polling(ctx)}
	if err := r.ask(ctx, req, &w); err != nil {
		return nil, err
	}
	c.settle(w.Effects)
	return &tool.Result{Value: w.Value, Text: w.Text, Failed: w.Failed, Verdict: w.Verdict, Blobs: w.Blobs}, nil
}

// checkArguments refuses what can't go over the wire, as the tool itself would.
func checkArguments(args json.RawMessage) error {
	switch {
	case len(args) > tool.MaxArguments:
		return tool.Errorf(tool.TooLarge, "the arguments have %d bytes; at most %d are taken", len(args), tool.MaxArguments)
	case len(args) > 0 && !json.Valid(args):
		return tool.Errorf(tool.Invalid, "the arguments must be one JSON object")
	}
	return nil
}

// setSecrets hands the values to the holder, which lives on for them.
func (r *remote) setSecrets(ctx context.Context, all map[string]Secret) error {
	wire := make(map[string]wireSecret, len(all))
	for name, s := range all {
		wire[name] = wireSecret(s)
	}
	return r.ask(ctx, request{Op: "secrets", Secrets: wire}, &struct{}{})
}

// clean has nothing to do: what comes from the holder is clean.
func (r *remote) clean(event Event, err error) (Event, error) { return event, err }

// inspect starts no holder: where there is none, no container runs.
func (r *remote) inspect(ctx context.Context) (*Inspection, error) {
	if !r.held(ctx) {
		return r.about(), nil
	}
	in := &Inspection{}
	return in, r.ask(ctx, request{Op: "inspect"}, in)
}

func (r *remote) run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	p, err := r.start(ctx, cmd)
	if err != nil {
		return sandbox.Result{}, err
	}
	res, err := p.Wait(ctx)
	if ctx.Err() != nil {
		_ = p.Kill()
		return sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + 9, Signal: "KILL"}, nil
	}
	return res, err
}

func (r *remote) start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if cmd.Python != nil || cmd.Control != nil || cmd.Capture != nil {
		return nil, tool.Errorf(tool.Unsupported, "a program with private channels runs only in the process that holds the session; use Call")
	}
	req := request{Op: "run", By: callerOf(ctx), Trace: traceOf(ctx), Call: callOf(ctx).id, Cmd: &wireCmd{
		Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Timeout: cmd.Timeout, TTY: cmd.TTY, Stdin: cmd.Stdin != nil,
		Quiet: [2]bool{cmd.Stdout == nil, cmd.Stderr == nil},
	}}
	c, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	p := &remoteProcess{c: c, done: make(chan struct{}), window: newWindow(stdinWindow)}
	if err := p.begin(ctx, req); err != nil {
		_ = c.Close()
		return nil, err
	}
	if cmd.Stdin != nil {
		go p.feed(cmd.Stdin)
	}
	go p.follow(cmd)
	return p, nil
}

// remoteProcess is a program that runs in the holder.
type remoteProcess struct {
	c      *holdwire.Conn
	window *window       // how much input may be sent
	done   chan struct{} // closed when res and err are set
	res    sandbox.Result
	err    error

	killOnce sync.Once
}

func (p *remoteProcess) begin(ctx context.Context, req request) error {
	stop := context.AfterFunc(ctx, func() { _ = p.c.Close() })
	defer stop()
	if err := p.c.SendJSON(holdwire.Request, req); err != nil {
		return errHolderLost
	}
	kind, raw, err := p.c.Receive()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errHolderLost
	case kind == holdwire.Failure:
		return failure(raw)
	}
	return nil
}

// feed sends input, never more than a window ahead of the program.
func (p *remoteProcess) feed(in io.Reader) {
	buf := make([]byte, holdwire.ChunkSize)
	for {
		room := p.window.take(len(buf))
		if room == 0 {
			return
		}
		n, err := in.Read(buf[:room])
		p.window.give(room - n)
		if n > 0 && p.c.Send(holdwire.Stdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = p.c.Send(holdwire.StdinEnd, nil)
			return
		}
	}
}

// follow passes output on until the result comes.
func (p *remoteProcess) follow(cmd sandbox.Cmd) {
	defer p.c.Close()
	defer close(p.done)
	defer p.window.close()
	for {
		kind, payload, err := p.c.Receive()
		if err != nil {
			p.res, p.err = sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}, nil
			return
		}
		switch kind {
		case holdwire.Stdout:
			_, _ = cmd.Stdout.Write(payload)
		case holdwire.Stderr:
			_, _ = cmd.Stderr.Write(payload)
		case holdwire.Stdin:
			p.window.give(int(binary.BigEndian.Uint32(payload)))
		case holdwire.Failure:
			p.err = failure(payload)
			return
		case holdwire.Answer:
			p.err = json.Unmarshal(payload, &p.res)
			return
		}
	}
}

// Wait implements sandbox.Process.
func (p *remoteProcess) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
		return p.res, p.err
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
}

// Signal implements sandbox.Process.
func (p *remoteProcess) Signal(name string) error { return p.send(holdwire.Signal, []byte(name)) }

// Resize implements sandbox.Process.
func (p *remoteProcess) Resize(size sandbox.WinSize) error {
	raw, err := json.Marshal(size)
	return errors.Join(err, p.send(holdwire.Resize, raw))
}

// Kill implements sandbox.Process.
func (p *remoteProcess) Kill() error {
	p.killOnce.Do(func() { _ = p.send(holdwire.Kill, nil) })
	return nil
}

func (p *remoteProcess) send(t holdwire.Type, payload []byte) error {
	select {
	case <-p.done:
		return nil // an ended program takes no signal, and that is no error
	default:
		return p.c.Send(t, payload)
	}
}
