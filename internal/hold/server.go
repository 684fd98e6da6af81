package hold

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool/answer"
)

// Options are the options of a Holder. Session is required.
type Options struct {
	Session Session
	// Idle is the time that the holder stays without a client and without a program; 0 means
	// [DefaultIdle].
	Idle time.Duration
	// Ending is called when the holder ends, before it waits for the running operations, which are
	// cancelled; nil does nothing.
	Ending func(cause error)
	// Metrics returns the counters; nil if there are none.
	Metrics func() ([]byte, error)
	Log     *slog.Logger // default none
}

// DefaultIdle is the time that a holder stays without a client and without a process that outlives
// its clients.
const DefaultIdle = 10 * time.Minute

// Holder serves one session on a socket. A process may have any number of them.
type Holder struct {
	opts   Options
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	conns int       // clients, except those that only look
	empty bool      // the sandbox is removed, and no client has used the session since
	due   time.Time // the next check for idleness
	timer *time.Timer
	rest  *time.Timer // gives memory back
	last  []*Conn     // clients that wait for the end
}

// New returns a Holder, which Serve runs.
func New(opts *Options) *Holder {
	h := &Holder{opts: *opts}
	if h.opts.Idle == 0 {
		h.opts.Idle = DefaultIdle
	}
	if h.opts.Log == nil {
		h.opts.Log = slog.New(slog.DiscardHandler)
	}
	return h
}

var (
	errIdle    = errors.New("idle")
	errStopped = errors.New("stopped by a client")
)

// farewell is the time that a client has to take the last frames when the holder ends, so that a
// client that stalls can't keep it alive.
var farewell = patience.For(5 * time.Second)

// restAfter is the time without a client after which a holder gives freed memory back to the system: most holders do
// nothing most of the time, and there may be hundreds.
const restAfter = 5 * time.Second

// Serve serves clients until ctx ends, a client stops the holder, or nobody has used it for Idle,
// and returns the cause. Call Free when the session is closed.
func (h *Holder) Serve(ctx context.Context, l net.Listener) (cause error) {
	ctx, h.cancel = context.WithCancelCause(ctx)
	h.mu.Lock()
	h.timer = time.AfterFunc(h.opts.Idle, h.lookIdle)
	h.rest = time.AfterFunc(restAfter, debug.FreeOSMemory)
	h.due = time.Now().Add(h.opts.Idle)
	h.mu.Unlock()
	var conns sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		h.enter()
		conns.Go(func() { h.serve(ctx, l, c) })
	}
	h.cancel(errStopped)
	h.timer.Stop()
	h.rest.Stop()
	if h.opts.Ending != nil {
		h.opts.Ending(context.Cause(ctx))
	}
	conns.Wait()
	return context.Cause(ctx)
}

// Free reports to the clients that wait for the end that the session is free.
func (h *Holder) Free() {
	for _, c := range h.last {
		_ = c.Close()
	}
}

func (h *Holder) serve(ctx context.Context, l net.Listener, c net.Conn) {
	conn := NewConn(c)
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now().Add(farewell)) })()
	defer h.operate(ctx, conn)()
	if ctx.Err() != nil { // must come first: a client that was not taken dials again, and finds the next holder
		_ = l.Close()
	}
	if !h.keeps(conn) {
		_ = c.Close()
	}
}

// keeps reports whether a client waits for the holder's end.
func (h *Holder) keeps(c *Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.last, c)
}

// enter counts a client, leave ends its count; the idle time begins when the last one leaves. A
// client that only looks leaves as soon as its request is read, and delays nothing.
func (h *Holder) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns++
	h.timer.Stop()
	h.rest.Stop()
}

func (h *Holder) leave(use bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if use {
		h.empty, h.due = false, time.Now().Add(h.opts.Idle)
	}
	if h.conns--; h.conns == 0 {
		h.timer.Reset(time.Until(h.due))
		h.rest.Reset(restAfter)
	}
}

// lookAgain sets the next check. The caller must hold mu.
func (h *Holder) lookAgain(in time.Duration) {
	h.due = time.Now().Add(in)
	h.timer.Reset(in)
}

// lookIdle ends the holder unless a process still runs. It first removes the sandbox, which is
// slow: a client that connects meanwhile waits and is served, whereas a client of an ending holder
// must start another one.
func (h *Holder) lookIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.conns > 0:
	case time.Until(h.due) > 0: // a client came after the timer had fired
		h.timer.Reset(time.Until(h.due))
	case h.opts.Session.Busy():
		h.lookAgain(h.opts.Idle)
	case !h.empty:
		h.removeSandbox()
		h.empty = true
		h.lookAgain(lastCall)
	default:
		h.cancel(errIdle)
	}
}

// lastCall is the time that waiting clients have to connect.
const lastCall = 200 * time.Millisecond

// emptyTime bounds the removal of an idle sandbox.
var emptyTime = patience.For(30 * time.Second)

func (h *Holder) removeSandbox() {
	ctx, cancel := context.WithTimeout(context.Background(), emptyTime)
	defer cancel()
	if err := h.opts.Session.Empty(ctx); err != nil {
		h.opts.Log.Warn("remove an idle sandbox", "error", err)
	}
}

// operate performs one operation; the caller must call done when the client has gone.
func (h *Holder) operate(ctx context.Context, c *Conn) (done func()) {
	done = func() { h.leave(false) } // an operation that isn't taken is no use
	kind, raw, err := c.Receive()
	if err != nil || kind != FrameRequest {
		return done
	}
	var req Request
	if json.Unmarshal(raw, &req) != nil || !take(ctx, c, req) {
		return done
	}
	done = func() { h.leave(true) }
	if req.Op == opMetrics || req.Look {
		h.leave(false)
		done = func() {}
	}
	h.perform(ctx, c, req)
	return done
}

// take reports to the client that its operation begins. If it can't, the operation must not begin,
// because the client may ask the next holder.
func take(ctx context.Context, c *Conn, req Request) bool {
	if ctx.Err() != nil && req.Op != opStop {
		return false // this holder ends
	}
	if req.Ack && c.Send(FrameTaken, []byte(Version)) != nil {
		return false
	}
	if !req.Go {
		return true
	}
	kind, _, err := c.Receive()
	return err == nil && kind == FrameGo
}

// ServeConn performs the one operation of a connection, for a server of many sessions, and returns
// when it is over. The end of ctx or of the connection ends the operation.
func ServeConn(ctx context.Context, conn net.Conn, s Session) {
	c := NewConn(conn)
	defer c.Close()
	kind, raw, err := c.Receive()
	if err != nil || kind != FrameRequest {
		return
	}
	var req Request
	if json.Unmarshal(raw, &req) != nil || req.Op == opStop || !take(ctx, c, req) {
		return
	}
	(&Holder{opts: Options{Session: s}}).perform(ctx, c, req)
}

// perform performs a taken operation, and reports its failure.
func (h *Holder) perform(ctx context.Context, c *Conn, req Request) {
	ctx, cancel := context.WithCancel(req.context(ctx))
	defer cancel()
	if err := h.dispatch(ctx, c, req); err != nil {
		_ = c.SendJSON(FrameFailure, answer.AsError(err))
	}
}

func (h *Holder) dispatch(ctx context.Context, c *Conn, req Request) error {
	switch req.Op {
	case opMetrics:
		return h.metrics(c)
	case opStop:
		h.stop(c)
		return nil
	}
	op, ours := cutVersion(req.Op)
	if !ours {
		return errVersion
	}
	req.Op = op
	x := newExchange(ctx, c, req)
	defer x.end()
	if req.Started {
		return x.start(h.opts.Session)
	}
	return x.do(h.opts.Session)
}

var errVersion = answer.Errorf(answer.Unsupported, "this session is held by another version of wisbox; use that version, or wait until its holder ends (10 minutes after the last use)")

func (h *Holder) metrics(c *Conn) error {
	if h.opts.Metrics == nil {
		return answer.Errorf(answer.Unsupported, "this session's holder counts nothing")
	}
	report, err := h.opts.Metrics()
	if err != nil {
		return err
	}
	return c.SendJSON(FrameAnswer, report)
}

// stop ends the holder. The client's connection stays open until the very end, since its close
// reports that the session is free.
func (h *Holder) stop(c *Conn) {
	h.mu.Lock()
	h.last = append(h.last, c)
	h.mu.Unlock()
	h.cancel(errStopped)
}
