package hold

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// Client is a client of one session's holder. Each operation has its own connection. If that is lost,
// the error is unavailable, and the next operation starts the holder again.
// Its methods may be called from many goroutines at once.
type Client struct {
	// Dial connects to the running holder. The error wraps ErrNoHolder if there is none.
	Dial func(ctx context.Context) (*Conn, error)
	// Launch starts a holder if there is none; nil starts none.
	Launch func(ctx context.Context) error
	// Replace ends a holder of another version, so that the next Launch starts one
	// of this version; nil leaves it alone.
	Replace func(ctx context.Context)
	// Far reports whether the connections go to another machine, where they can break while both ends
	// live. The error of a lost operation then is [ErrConnectionLost].
	Far bool
}

var (
	// ErrNoHolder reports that no holder runs and none is started.
	ErrNoHolder = errors.New("the session has no holder")
	// errNotTaken is the error of an operation that no holder took.
	errNotTaken = answer.Errorf(answer.Unavailable,
		"the process that holds this session ended before it took the call, each time it was tried; nothing of the call was done; call again, and if that doesn't help see `wisbox doctor`")
	// ErrOtherVersion is the error of an operation that a holder of another version
	// refused.
	ErrOtherVersion = answer.Errorf(answer.Unavailable,
		"this session is held by another version of wisbox; its next call or program ends that process, with its programs, and starts one of this version over the same files")

	// ErrConnectionLost is the error of an operation that another machine had taken when the
	// connection broke.
	ErrConnectionLost = answer.Errorf(answer.Unavailable,
		"the connection to the other machine broke during the call: it may have begun there, and then it is ended as when its client leaves; what it has done stays, and so do the session, its processes and interpreters; `wisbox history` shows whether it began and how it ended")
	errFarNotTaken = answer.Errorf(answer.Unavailable,
		"the connection to the other machine broke before it took the call, each time it was tried; nothing of the call was done; call again")
	errFarSilent = answer.Errorf(answer.Unavailable,
		"the other machine takes no call; nothing of the call was done; call again")

	errHolderLost = answer.Errorf(answer.Unavailable,
		"the process that holds this session ended during the call; what the call ran, kept interpreters and their state are lost, files are not; call again")
	errJoinLost = answer.Errorf(answer.Unavailable,
		"the process that holds this session ended; if it was killed, the program goes on: `wisbox ps` shows it within a minute, then attach again")
	// ErrStandsStill is the error of an operation that a holder doesn't take.
	ErrStandsStill = answer.Errorf(answer.Unavailable,
		"the process that holds this session takes no call: it may be stopped; nothing of the call was done; let it go on (SIGCONT) or kill it (`wisbox __hold` in the list of processes), then call again")
)

// Untaken reports that no holder took an operation, because none runs or only one of another version: nothing of it was
// done, and no input was read.
func Untaken(err error) bool {
	return errors.Is(err, ErrNoHolder) || errors.Is(err, errNotTaken) || errors.Is(err, ErrOtherVersion)
}

// TakeWait is how long a holder has to take an operation. A busy one needs milliseconds. Tests change
// it.
var TakeWait = patience.For(30 * time.Second)

// hangUp is how long a cancelled operation has to report its progress.
const hangUp = 2 * time.Second

// tries is the number of holders to which an operation is offered. A killed one may refuse it twice,
// since the kernel closes its connections and its socket in any order.
const tries = 5

// Do performs an operation and decodes its answer into out.
func (c *Client) Do(ctx context.Context, req Request, io Streams, out any) error {
	req.Op = versioned + req.Op
	p, err := c.deliver(ctx, req.complete(ctx, io), io)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.hangUp)
	defer stop()
	for signals := io.Signals; ; {
		select {
		case <-p.done:
			return p.read(ctx, out)
		case <-p.abandoned:
			return ctx.Err()
		case name, more := <-signals:
			if !more {
				signals = nil
				continue
			}
			go func() { _ = p.c.Send(FrameSignal, []byte(name)) }() // it may wait for input that is being sent
		}
	}
}

// Start starts a program, which the returned process controls.
func (c *Client) Start(ctx context.Context, req Request, io Streams) (sandbox.Process, error) {
	req.Op, req.Started = versioned+req.Op, true
	p, err := c.deliver(ctx, req.complete(ctx, io), io)
	if err != nil {
		return nil, err
	}
	return process{p, req.Joins}, nil
}

// Metrics returns the holder's counters. It doesn't count as use of the session:
// polling keeps no holder alive.
func (c *Client) Metrics(ctx context.Context) (report []byte, err error) {
	p, err := c.deliver(ctx, Request{Op: opMetrics, Ack: true}, Streams{})
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = p.c.Close() })()
	<-p.done
	return report, p.read(ctx, &report)
}

// Stop ends the holder, if there is one, and waits until it has let go of the
// session.
func (c *Client) Stop(ctx context.Context) {
	conn, err := c.Dial(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if conn.SendJSON(FrameRequest, Request{Op: opStop}) != nil {
		return
	}
	for err == nil { // the answer, then the connection's end with the holder's
		_, _, err = conn.Receive()
	}
}

// deliver offers an operation to one holder after the other until one takes it. An operation that a
// holder has not taken has not begun, so it can go to the next one. (A holder of a version without
// Taken may have begun before its first other frame.)
func (c *Client) deliver(ctx context.Context, req Request, io Streams) (p *operation, err error) {
	for range tries {
		p, err = c.offer(ctx, req, io)
		switch {
		case errors.Is(err, ErrOtherVersion) && c.Replace != nil:
			c.Replace(ctx)
		case !errors.Is(err, errNotTaken):
			return p, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if c.Far {
		err = errFarNotTaken
	}
	return nil, err
}

func (c *Client) connect(ctx context.Context) (*Conn, error) {
	conn, err := c.Dial(ctx)
	if err == nil || c.Launch == nil {
		return conn, err
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := c.Launch(ctx); err != nil {
		return nil, err
	}
	if conn, err = c.Dial(ctx); err != nil { // it ended at once, or another one did that was quicker
		return nil, errNotTaken
	}
	return conn, nil
}

// offer sends the request and returns once the holder has begun: with its first
// frame beside Taken, or for an operation with input as soon as it is taken.
func (c *Client) offer(ctx context.Context, req Request, io Streams) (*operation, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	p := &operation{c: conn, io: io, progress: answer.Progress(ctx), window: newWindow(stdinWindow), done: make(chan struct{}), abandoned: make(chan struct{})}
	conn.takes, p.far, req.Go = io.Conn != nil, c.Far, c.Far
	stop := context.AfterFunc(ctx, p.cancel)
	defer stop()
	late := time.AfterFunc(TakeWait, p.giveUp)
	defer late.Stop()
	if conn.SendJSON(FrameRequest, req) != nil {
		err = p.untaken() // no holder acts on half a request
	} else {
		err = p.begin(ctx, req.Started)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	if io.Stdin != nil {
		go p.feed(io.Stdin)
	}
	go p.follow()
	return p, nil
}

// operation is a connection for one operation of the holder.
type operation struct {
	c        *Conn
	io       Streams
	progress func(string)
	window   *window // how much input may be sent

	taken  atomic.Bool // it may have begun
	still  atomic.Bool // it was given up, because nobody takes it
	older  bool        // the holder names no version
	far    bool        // it is on another machine
	killed atomic.Bool
	said   []byte // with the start

	first struct { // frame that was read by begin
		kind    Type
		payload []byte
	}
	done      chan struct{} // closed when answer or err is set
	answer    []byte
	err       error
	abandoned chan struct{} // closed when a cancelled operation had its time
}

// untaken returns the error of an operation that was not begun.
func (p *operation) untaken() error {
	switch {
	case p.still.Load() && p.far:
		return errFarSilent
	case p.still.Load():
		return ErrStandsStill
	}
	return errNotTaken
}

// giveUp ends an operation that nobody has taken.
func (p *operation) giveUp() {
	if !p.taken.Load() {
		p.still.Store(true)
		_ = p.c.Close()
	}
}

// cancel ends the operation while it is offered.
func (p *operation) cancel() {
	if !p.taken.Load() {
		_ = p.c.Close()
		return
	}
	p.hangUp()
}

// hangUp requests the operation's end. The operation may still report its progress.
func (p *operation) hangUp() {
	if p.killed.Swap(true) {
		return
	}
	time.AfterFunc(hangUp, func() { // must come first: Send waits for input that is being sent, perhaps forever
		_ = p.c.Close()
		close(p.abandoned)
	})
	_ = p.c.Send(FrameKill, nil)
}

// begin waits until the holder has taken the operation, or has started the program.
func (p *operation) begin(ctx context.Context, started bool) error {
	kind, payload, err := p.c.Receive()
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return p.untaken()
	}
	p.taken.Store(true) // by whatever frame: an older holder doesn't say Taken
	if kind == FrameTaken {
		p.older = len(payload) == 0
		if p.far {
			if err := p.c.Send(FrameGo, nil); err != nil { // it may have left all the same
				return p.lost(ctx)
			}
		}
		if !started && !p.older {
			return nil
		}
		if kind, payload, err = p.c.Receive(); err != nil {
			return p.lost(ctx)
		}
	} else {
		p.older = true
	}
	switch {
	case kind == FrameFailure && p.older && answer.KindOf(failure(payload)) == answer.Unsupported:
		return ErrOtherVersion
	case kind == FrameFailure && started:
		return failure(payload)
	case kind != FrameStarted:
		p.first.kind, p.first.payload = kind, payload
	default:
		p.said = bytes.Clone(payload)
	}
	return nil
}

// read decodes the operation's answer, once it is done.
func (p *operation) read(ctx context.Context, out any) error {
	switch {
	case errors.Is(p.err, errHolderLost):
		return p.lost(ctx)
	case p.err != nil:
		return p.err
	}
	return json.Unmarshal(p.answer, out)
}

func (p *operation) lost(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case p.far:
		return ErrConnectionLost
	}
	return errHolderLost
}

// feed sends input, never more than a window ahead of what the holder has read.
func (p *operation) feed(in io.Reader) {
	buf := make([]byte, ChunkSize)
	for {
		room := p.window.take(len(buf))
		if room == 0 {
			return
		}
		n, err := in.Read(buf[:room])
		p.window.give(room - n)
		if n > 0 && p.c.Send(FrameStdin, buf[:n]) != nil {
			return
		}
		if err != nil {
			_ = p.c.Send(FrameStdinEnd, endOf(err))
			return
		}
	}
}

// endOf returns the payload for the end of input: empty at its real end, else the reason.
func endOf(err error) []byte {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return []byte("the input was cut off")
}

// follow passes output on until the answer comes.
func (p *operation) follow() {
	defer p.c.Close()
	defer p.c.drop()
	defer close(p.done)
	defer p.window.close()
	kind, payload := p.first.kind, p.first.payload
	for {
		if kind != 0 && p.handle(kind, payload) {
			return
		}
		var err error
		if kind, payload, err = p.receive(); err != nil {
			p.err = errHolderLost
			return
		}
	}
}

// receive reads a frame; one of output that was passed on already has the type 0.
func (p *operation) receive() (Type, []byte, error) {
	kind, n, err := p.c.receiveHeader()
	if err != nil {
		return 0, nil, err
	}
	if to, ok := p.io.Stdout.(Mover); ok && kind == FrameStdout && n >= movable && !p.c.takes {
		return 0, nil, p.c.move(to, n)
	}
	payload, err := p.c.receivePayload(n)
	return kind, payload, err
}

// handle handles one frame and reports whether it was the last.
func (p *operation) handle(kind Type, payload []byte) (last bool) {
	switch kind {
	case FrameStdout:
		write(p.io.Stdout, payload)
	case FrameStderr:
		write(p.io.Stderr, payload)
	case FrameStdin:
		if len(payload) == 4 {
			p.window.give(int(binary.BigEndian.Uint32(payload)))
		}
	case FrameConn:
		if p.err = p.takeConn(); p.err != nil {
			return true
		}
	case FrameProgress:
		if p.progress != nil {
			p.progress(string(payload))
		}
	case FrameFailure:
		p.err = failure(payload)
		return true
	case FrameAnswer:
		p.answer = payload
		return true
	}
	return false
}

// takeConn passes the received connection to the caller.
func (p *operation) takeConn() error {
	conn, err := p.c.conn()
	if err != nil || p.io.Conn == nil {
		return answer.Errorf(answer.Internal, "the session's holder passed no connection").Because(err)
	}
	return p.io.Conn(conn)
}

// write passes output on. A reader that is gone is not an error of the operation.
func write(w io.Writer, p []byte) {
	if w != nil {
		_, _ = w.Write(p)
	}
}

func failure(raw []byte) error {
	e := &answer.Error{}
	if err := json.Unmarshal(raw, e); err != nil {
		return err
	}
	return e
}

// process is a program that runs in the holder.
type process struct {
	p     *operation
	joins bool
}

// Introduction implements [Introducer].
func (r process) Introduction() ([]byte, error) { return r.p.said, nil }

// Wait implements sandbox.Process. The loss of the holder ends the program, unless the operation only
// attached to it.
func (r process) Wait(ctx context.Context) (res sandbox.Result, err error) {
	select {
	case <-r.p.done:
	case <-ctx.Done():
		return res, ctx.Err()
	}
	switch {
	case errors.Is(r.p.err, errHolderLost) && r.p.far:
		return res, ErrConnectionLost
	case errors.Is(r.p.err, errHolderLost) && r.joins:
		return res, errJoinLost
	case errors.Is(r.p.err, errHolderLost):
		return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}, nil
	case r.p.err != nil:
		return res, r.p.err
	}
	return res, json.Unmarshal(r.p.answer, &res)
}

// Signal implements sandbox.Process.
func (r process) Signal(name string) error { return r.send(FrameSignal, []byte(name)) }

// Resize implements sandbox.Process.
func (r process) Resize(size sandbox.WinSize) error {
	raw, err := json.Marshal(size)
	return errors.Join(err, r.send(FrameResize, raw))
}

// Kill implements sandbox.Process.
func (r process) Kill() error {
	if !r.p.killed.Swap(true) {
		_ = r.send(FrameKill, nil)
	}
	return nil
}

func (r process) send(t Type, payload []byte) error {
	select {
	case <-r.p.done:
		return nil // signalling an ended program is not an error
	default:
		return r.p.c.Send(t, payload)
	}
}
