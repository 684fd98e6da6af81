package wisbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"sync/atomic"
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
	holder  line               // starts one where there is none
	running line               // starts none: errNoHolder
	about   func() *Inspection // what is known without it
	dir     *overlay.Dir
	opts    SessionOptions

	mu        sync.Mutex
	snapshots *snapshot.Store // opened when it is needed
}

func (r *remote) tools() *tool.Set { return ToolSet() }
func (r *remote) records() bool    { return false }

func (r *remote) close(context.Context, bool) error { return r.closeStore() }

var (
	errHolderLost = tool.Errorf(tool.Unavailable,
		"the process that holds this session ended during the call; its programs, kept interpreters and their state are lost, files are not; call again")
	errNotTaken = tool.Errorf(tool.Unavailable,
		"the process that holds this session ended before it took the call, each time it was tried; nothing of the call was done; call again, and if that doesn't help see `wisbox doctor`")
	errStandsStill = tool.Errorf(tool.Unavailable,
		"the process that holds this session takes no call: it may be stopped; nothing of the call was done; let it go on (SIGCONT) or kill it (`wisbox __hold` in the list of processes), then call again")
)

// takeWait is how long a holder has to take an operation. One that is only busy
// takes milliseconds.
var takeWait = 30 * time.Second

// hangUp is how long a cancelled operation has to say how far it came.
const hangUp = 2 * time.Second

// line connects to a session's holder.
type line func(ctx context.Context) (*holdwire.Conn, error)

// tries is how many holders an operation is offered to. One that is killed may
// refuse it twice: the kernel closes its connections and its socket in any order.
const tries = 5

// deliver has one operation done by a holder: do follows it over its connection,
// and keeps that only without an error. What a holder has not taken has not begun,
// so it goes to the next one. (A holder of a wisbox that didn't know Taken yet may
// have begun before its first other frame.)
func (l line) deliver(ctx context.Context, req request, do func(*operation) error) (err error) {
	req.By, req.Trace, req.Ack = callerOf(ctx), traceOf(ctx), true
	for range tries {
		err = l.offer(ctx, req, do)
		switch {
		case !errors.Is(err, errNotTaken):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
	return err
}

func (l line) offer(ctx context.Context, req request, do func(*operation) error) error {
	c, err := l(ctx)
	if err != nil {
		return err
	}
	op := &operation{Conn: c}
	stop := context.AfterFunc(ctx, op.cancel)
	defer stop()
	late := time.AfterFunc(takeWait, op.giveUp)
	defer late.Stop()
	if op.SendJSON(holdwire.Request, req) != nil {
		err = op.untaken() // no holder acts on half a request
	} else {
		err = do(op)
	}
	if err != nil {
		_ = op.Close()
	}
	return err
}

// operation is a connection over which one thing is asked of the holder.
type operation struct {
	*holdwire.Conn
	taken atomic.Bool // it may have begun
	still atomic.Bool // it was given up, because nobody takes it
}

// untaken is why nothing of the operation was done.
func (o *operation) untaken() error {
	if o.still.Load() {
		return errStandsStill
	}
	return errNotTaken
}

// giveUp ends an operation that nobody has taken.
func (o *operation) giveUp() {
	if !o.taken.Load() {
		o.still.Store(true)
		_ = o.Close()
	}
}

// next gives the operation's next frame. The connection's end is ctx's error,
// errNotTaken, errStandsStill or errHolderLost.
func (o *operation) next(ctx context.Context) (holdwire.Type, []byte, error) {
	kind, raw, err := o.Receive()
	switch {
	case err == nil:
		o.taken.Store(true) // by whatever frame: an older holder doesn't say Taken
		if kind == holdwire.Taken {
			return o.next(ctx)
		}
		return kind, raw, nil
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case o.taken.Load():
		return 0, nil, errHolderLost
	}
	return 0, nil, o.untaken()
}

// cancel ends the operation. One that has begun may say how far it came.
func (o *operation) cancel() {
	if !o.taken.Load() {
		_ = o.Close()
		return
	}
	_ = o.Send(holdwire.Kill, nil)
	time.AfterFunc(hangUp, func() { _ = o.Close() })
}

// ask does an operation that is one request and one answer.
func (l line) ask(ctx context.Context, req request, answer any) error {
	return l.deliver(ctx, req, func(op *operation) error {
		defer op.Close()
		for {
			kind, raw, err := op.next(ctx)
			switch {
			case err != nil:
				return err
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
	})
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
	if err := r.holder.ask(ctx, req, &w); err != nil {
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
	return r.holder.ask(ctx, request{Op: "secrets", Secrets: wire}, &struct{}{})
}

// clean has nothing to do: what comes from the holder is clean.
func (r *remote) clean(event Event, err error) (Event, error) { return event, err }

// inspect starts no holder: where there is none, no container runs.
func (r *remote) inspect(ctx context.Context) (*Inspection, error) {
	in := &Inspection{}
	err := r.running.ask(ctx, request{Op: "inspect"}, in)
	if errors.Is(err, errNoHolder) {
		return r.about(), nil
	}
	if errors.Is(err, errStandsStill) {
		in = r.about()
		in.Gaps, err = append(in.Gaps, "the process that holds the session takes no call: its container can't be asked"), nil
	}
	return in, err
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
	req := request{Op: "run", Call: callOf(ctx).id, Cmd: &wireCmd{
		Argv: cmd.Argv, Dir: cmd.Dir, Env: cmd.Env, Timeout: cmd.Timeout, TTY: cmd.TTY, Stdin: cmd.Stdin != nil,
		Quiet: [2]bool{cmd.Stdout == nil, cmd.Stderr == nil},
	}}
	p := &remoteProcess{done: make(chan struct{}), window: newWindow(stdinWindow)}
	if err := r.holder.deliver(ctx, req, func(op *operation) error { return p.begin(ctx, op) }); err != nil {
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

// begin waits until the program runs. It can't say how far it came.
func (p *remoteProcess) begin(ctx context.Context, op *operation) error {
	stop := context.AfterFunc(ctx, func() { _ = op.Close() })
	defer stop()
	p.c = op.Conn
	kind, raw, err := op.next(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil && kind == holdwire.Failure:
		return failure(raw)
	}
	return err
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
