package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/holdwire"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// HoldIdle is how long a holder stays without a client and without a process
// that process_start began.
const HoldIdle = 10 * time.Minute

// opStop ends a holder, also one that ends already.
const opStop = "stop"

// request is the first frame of an operation.
type request struct {
	Op   string          `json:"op"`             // call, run, inspect, secrets, reset, metrics, stop
	By   string          `json:"by"`             // who asks, for the log
	Ack  bool            `json:"ack,omitempty"`  // the client waits for Taken: older ones don't know it
	Call string          `json:"call,omitempty"` // the client's id of the call
	Tool string          `json:"tool,omitempty"`
	Args json.RawMessage `json:"args,omitempty"`
	Cmd  *wireCmd        `json:"cmd,omitempty"`
	// What the caller of a tool asked for beside.
	Progress bool          `json:"progress,omitempty"`
	Polling  time.Duration `json:"polling,omitempty"`

	Secrets map[string]wireSecret `json:"secrets,omitempty"`
	Trace   map[string]string     `json:"trace,omitempty"` // W3C Trace Context of who asks
}

// wireSecret is a Secret on the wire, the only place where a value is marshalled.
type wireSecret struct {
	File  string `json:"file,omitempty"`
	Value []byte `json:"value,omitempty"`
}

// wireCmd is what of a sandbox.Cmd goes over the wire.
type wireCmd struct {
	Argv    []string         `json:"argv"`
	Dir     string           `json:"dir,omitempty"`
	Env     []string         `json:"env,omitempty"`
	Timeout time.Duration    `json:"timeout,omitempty"`
	TTY     *sandbox.WinSize `json:"tty,omitempty"`
	Stdin   bool             `json:"stdin,omitempty"`
	Quiet   [2]bool          `json:"quiet,omitempty"` // stdout, stderr are not wanted
}

// wireResult is a tool.Result on the wire.
type wireResult struct {
	Value   json.RawMessage `json:"value"`
	Text    string          `json:"text"`
	Failed  bool            `json:"failed,omitempty"`
	Verdict string          `json:"verdict,omitempty"`
	Blobs   []tool.Blob     `json:"blobs,omitempty"`
	Effects
}

// holder serves one session on a unix socket.
type holder struct {
	s      *Session
	idle   time.Duration
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	conns int
	empty bool      // the sandbox is removed, and no client came since
	used  time.Time // when the last client that used the session left
	timer *time.Timer
	last  []*holdwire.Conn // clients that wait for the end
}

var (
	errIdle    = errors.New("idle")
	errStopped = errors.New("stopped by a client")
	errExpired = errors.New("the session's time to live is over")
)

// Hold keeps a session's sandbox, interpreters and processes for its clients
// until ctx ends, a client stops it, or nobody has used it for idle (0:
// [HoldIdle]). ready is called once clients can connect. At its end the
// container is removed; the files stay. A second holder is an error of kind busy;
// one that ends, or was killed, is waited for, at most 30 s.
func (m *Manager) Hold(ctx context.Context, name string, idle time.Duration, ready func()) error {
	if idle == 0 {
		idle = HoldIdle
	}
	s, err := m.attachLocal(ctx, name)
	if err != nil {
		return err
	}
	release, listener, err := m.listen(ctx, s)
	if err != nil {
		return errors.Join(err, s.end(ctx, true))
	}
	defer release()
	s.host.(*local).noteLoss(markHeld(s.dir))
	ctx, cancel := context.WithCancelCause(ctx)
	h := &holder{s: s, idle: idle, cancel: cancel, used: time.Now()}
	h.timer = time.AfterFunc(idle, h.lookIdle)
	if left, ok := s.dir.State().Left(overlay.Now()); ok {
		defer time.AfterFunc(left, func() { cancel(errExpired) }).Stop()
	}
	ready()
	h.serve(ctx, listener)
	m.log.Info("holder ends", "session", name, "cause", context.Cause(ctx))
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), dropGrace)
	defer stop()
	err = s.end(end, false)
	unmarkHeld(s.dir)
	for _, c := range h.last {
		_ = c.Close()
	}
	return err
}

// farewell is how long, when the holder ends, a client has to take what is still to
// be said: one that takes nothing more, or says nothing, must not keep it.
const farewell = 5 * time.Second

func (h *holder) serve(ctx context.Context, l net.Listener) {
	var conns sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			break
		}
		h.enter()
		conns.Go(func() {
			conn := holdwire.New(c)
			defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now().Add(farewell)) })()
			use := h.operate(ctx, conn)
			defer h.leave(use)
			if ctx.Err() != nil { // first: a client that was not taken dials again, and finds the next holder
				_ = l.Close()
			}
			if !h.keeps(conn) {
				_ = c.Close()
			}
		})
	}
	h.cancel(errStopped)
	h.timer.Stop()
	conns.Wait()
}

// keeps tells whether a client waits for the holder's end.
func (h *holder) keeps(c *holdwire.Conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Contains(h.last, c)
}

// enter and leave follow the clients; the idle time begins when the last one
// leaves. One that only looks doesn't begin it anew.
func (h *holder) enter() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns++
	h.empty = false
	h.timer.Stop()
}

func (h *holder) leave(use bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if use {
		h.used = time.Now()
	}
	if h.conns--; h.conns == 0 {
		h.timer.Reset(max(0, h.idle-time.Since(h.used)))
	}
}

// lookIdle ends the holder unless a process still runs. What takes time of that,
// to remove the sandbox, comes first: a client that comes meanwhile waits, and is
// served, where one that finds the holder ending must start another.
func (h *holder) lookIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.conns > 0:
	case h.s.host.(*local).busy(), h.neededForSecrets():
		h.timer.Reset(h.idle)
	case !h.empty:
		h.removeSandbox()
		h.empty = true
		h.timer.Reset(lastCall)
	default:
		h.cancel(errIdle)
	}
}

// lastCall is how long clients that waited have to come in.
const lastCall = 200 * time.Millisecond

func (h *holder) removeSandbox() {
	ctx, cancel := context.WithTimeout(context.Background(), dropGrace)
	defer cancel()
	if err := h.s.host.(*local).box.close(ctx); err != nil {
		h.s.m.log.Warn("remove an idle sandbox", "session", h.s.ID(), "error", err)
	}
}

// neededForSecrets tells whether values would be lost with the holder that its
// session, which isn't over, still needs.
func (h *holder) neededForSecrets() bool {
	_, expired := h.s.dir.State().Expired(overlay.Now())
	return !expired && h.s.host.(*local).secrets.inMemory()
}

// operate does one operation, and tells whether it was a use of the session.
func (h *holder) operate(ctx context.Context, c *holdwire.Conn) (use bool) {
	kind, raw, err := c.Receive()
	if err != nil || kind != holdwire.Request {
		return true
	}
	var req request
	if json.Unmarshal(raw, &req) != nil || !take(ctx, c, req) {
		return true
	}
	ctx, cancel := context.WithCancel(traced(WithCaller(ctx, req.By), req.Trace))
	defer cancel()
	if err := h.dispatch(ctx, cancel, c, req); err != nil {
		_ = c.SendJSON(holdwire.Failure, tool.AsError(err))
	}
	return req.Op != opMetrics
}

// take tells the client that its operation begins. One that isn't told, or can't
// be, has none: it may ask the next holder.
func take(ctx context.Context, c *holdwire.Conn, req request) bool {
	if ctx.Err() != nil && req.Op != opStop {
		return false // this holder ends
	}
	return !req.Ack || c.Send(holdwire.Taken, nil) == nil
}

func (h *holder) dispatch(ctx context.Context, cancel func(), c *holdwire.Conn, req request) error {
	done := &call{id: req.Call}
	ctx = context.WithValue(ctx, givenKey{}, done)
	if req.Op == "run" && req.Cmd != nil {
		return h.run(ctx, c, *req.Cmd)
	}
	go func() { // what comes now is a Kill or the end of the client
		_, _, _ = c.Receive()
		cancel()
	}()
	switch req.Op {
	case "call":
		return h.call(ctx, c, req, done)
	case "inspect":
		in, err := h.s.Inspect(ctx)
		if err != nil {
			return err
		}
		return c.SendJSON(holdwire.Answer, in)
	case "secrets":
		all := make(map[string]Secret, len(req.Secrets))
		for name, s := range req.Secrets {
			all[name] = Secret(s)
		}
		if err := h.s.SetSecrets(ctx, all); err != nil {
			return err
		}
		return c.SendJSON(holdwire.Answer, struct{}{})
	case "reset":
		if err := h.s.Reset(ctx); err != nil {
			return err
		}
		return c.SendJSON(holdwire.Answer, struct{}{})
	case opMetrics:
		return h.report(c)
	case opStop:
		h.stop(c)
		return nil
	}
	return tool.Errorf(tool.Unsupported, "this session is held by another version of wisbox; remove it with: wisbox session rm %s, or use that version", h.s.ID())
}

// stop ends the holder. The client's connection stays open to the very end: its
// close tells that the session is free.
func (h *holder) stop(c *holdwire.Conn) {
	h.mu.Lock()
	h.last = append(h.last, c)
	h.mu.Unlock()
	h.cancel(errStopped)
}

func (h *holder) call(ctx context.Context, c *holdwire.Conn, req request, done *call) error {
	silent := func() {}
	if req.Progress {
		ctx, silent = reportTo(ctx, c)
	}
	res, err := h.s.Call(tool.WithPolling(ctx, req.Polling), req.Tool, req.Args)
	silent() // before the answer, which is the last frame
	if err != nil {
		return err
	}
	value, err := json.Marshal(res.Value)
	if err != nil {
		return fmt.Errorf("marshal the result of %s: %w", req.Tool, err)
	}
	return c.SendJSON(holdwire.Answer, wireResult{value, res.Text, res.Failed, res.Verdict, res.Blobs, done.effects()})
}

// reportEvery is the shortest time between two reports of a call's progress.
const reportEvery = 500 * time.Millisecond

// reportTo sends a client what a call tells of its progress: the newest, now and
// then. After done nothing more is sent.
func reportTo(ctx context.Context, c *holdwire.Conn) (_ context.Context, done func()) {
	newest := make(chan string, 1)
	ctx, cancel := context.WithCancel(ctx)
	var sender sync.WaitGroup
	sender.Go(func() {
		tick := time.NewTicker(reportEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case text := <-newest:
				_ = c.Send(holdwire.Progress, []byte(text)) // to a client that is gone: dispatch sees it
			default:
			}
		}
	})
	var mu sync.Mutex
	report := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-newest:
		default:
		}
		newest <- text
	}
	return tool.WithProgress(ctx, report), func() { cancel(); sender.Wait() }
}
