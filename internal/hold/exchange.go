package hold

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// stdinWindow is the number of unread bytes of input that a client may send. So the holder's reader
// never waits for a program, and sees signals and the client's end at once.
const stdinWindow = 256 << 10

// exchange is one operation of a session on the holder's side.
type exchange struct {
	c      *Conn
	req    Request
	ctx    context.Context
	cancel context.CancelFunc
	in     *inbox
	io     Streams
	sig    chan string   // signals for the program of an operation that isn't started but done
	begun  chan struct{} // closed when the client knows that its program was started
}

// waitingSignals is the number of signals that wait for a program that isn't started yet; further
// ones are dropped.
const waitingSignals = 8

func newExchange(ctx context.Context, c *Conn, req Request) *exchange {
	x := &exchange{c: c, req: req, begun: make(chan struct{}), sig: make(chan string, waitingSignals)}
	x.io.Signals = x.sig
	x.ctx, x.cancel = context.WithCancel(ctx)
	x.in = newInbox(func(n int) {
		_ = c.Send(FrameStdin, binary.BigEndian.AppendUint32(nil, uint32(n)))
	})
	if req.Stdin {
		x.io.Stdin = x.in
	}
	if req.Stdout {
		x.io.Stdout = gated{c.Writer(FrameStdout), x.begun, x.ctx.Done()}
	}
	if req.Stderr {
		x.io.Stderr = gated{c.Writer(FrameStderr), x.begun, x.ctx.Done()}
	}
	if req.Conn {
		x.io.Conn = c.sendConn
	}
	return x
}

func (x *exchange) end() {
	x.cancel()
	x.in.end(io.EOF)
}

// do performs the operation. A Kill or the end of the client ends it.
func (x *exchange) do(s Session) error {
	close(x.begun)
	go func() {
		x.steer(nil)
		x.cancel()
	}()
	ctx, silent := x.ctx, func() {}
	if x.req.Progress {
		ctx, silent = reportTo(ctx, x.c)
	}
	reply, err := s.Do(ctx, x.req, x.io)
	silent() // before the answer, which is the last frame
	if err != nil {
		return err
	}
	return x.c.SendJSON(FrameAnswer, reply)
}

// start runs a program that its client controls. The end of the connection kills it.
func (x *exchange) start(s Session) error {
	p, err := s.Start(x.ctx, x.req, x.io)
	if err != nil {
		return err
	}
	var said []byte
	if of, ok := sandbox.As[Introducer](p); ok {
		if said, err = of.Introduction(); err != nil {
			x.end() // else its output would wait for a client that never knows of it
			err = errors.Join(err, p.Kill())
			_, _ = p.Wait(context.WithoutCancel(x.ctx)) // which frees what it has
			return err
		}
	}
	_ = x.c.Send(FrameStarted, said) // to a client that is gone: steer sees it
	close(x.begun)
	go func() {
		x.steer(p)
		_ = p.Kill()
	}()
	stop := context.AfterFunc(x.ctx, func() { _ = p.Kill() })
	defer stop()
	res, err := p.Wait(context.WithoutCancel(x.ctx))
	if err != nil {
		return err
	}
	return x.c.SendJSON(FrameAnswer, res)
}

// gated holds back output until the client knows that the program was started. If that never happens,
// it refuses the output, so that the writer doesn't wait forever.
type gated struct {
	w          io.Writer
	open, over <-chan struct{}
}

func (g gated) Write(p []byte) (int, error) {
	select {
	case <-g.open:
		return g.w.Write(p)
	default:
	}
	select {
	case <-g.open:
		return g.w.Write(p)
	case <-g.over:
		return 0, errClientGone
	}
}

// steer takes a client's frames until it is gone; p is nil if there is no
// program to steer.
func (x *exchange) steer(p sandbox.Process) {
	for {
		kind, payload, err := x.c.Receive()
		if err != nil {
			x.in.end(errClientGone)
			return
		}
		switch {
		case kind == FrameKill:
			return
		case kind == FrameStdin:
			if !x.in.put(payload) {
				return
			}
		case kind == FrameStdinEnd && len(payload) > 0:
			x.in.end(errors.New(string(payload)))
		case kind == FrameStdinEnd:
			x.in.end(io.EOF)
		case kind == FrameSignal && p != nil:
			_ = p.Signal(string(payload))
		case kind == FrameSignal:
			select {
			case x.sig <- string(payload):
			default:
			}
		case kind == FrameResize && p != nil:
			var size sandbox.WinSize
			if json.Unmarshal(payload, &size) == nil {
				_ = p.Resize(size)
			}
		}
	}
}

var errClientGone = errors.New("the client is gone")

// inbox holds unread input, at most a window of it.
type inbox struct {
	consumed func(int)

	mu   sync.Mutex
	more *sync.Cond
	data []byte
	over error // why no more comes; nil while it may
}

func newInbox(consumed func(int)) *inbox {
	b := &inbox{consumed: consumed}
	b.more = sync.NewCond(&b.mu)
	return b
}

// put adds input. It returns false if the client ignores the window.
func (b *inbox) put(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data)+len(p) > stdinWindow {
		return false
	}
	b.data = append(b.data, p...)
	b.more.Signal()
	return true
}

// end records that no more input comes, and why.
func (b *inbox) end(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over == nil {
		b.over = why
	}
	b.more.Broadcast()
}

// Read waits for input. After end, it returns the rest and then the reason.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.data) == 0 && b.over == nil {
		b.more.Wait()
	}
	if len(b.data) == 0 {
		defer b.mu.Unlock()
		return 0, b.over
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	b.mu.Unlock()
	b.consumed(n)
	return n, nil
}

// cutVersion returns an operation's name without the version, and whether that is ours.
func cutVersion(op string) (name string, ours bool) { return strings.CutPrefix(op, versioned) }

// reportEvery is the shortest time between two reports of a call's progress.
const reportEvery = 500 * time.Millisecond

// reportTo sends the newest progress of a call to its client at intervals, until done is called.
func reportTo(ctx context.Context, c *Conn) (_ context.Context, done func()) {
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
				_ = c.Send(FrameProgress, []byte(text)) // to a client that is gone: dispatch sees it
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
	return answer.WithProgress(ctx, report), func() { cancel(); sender.Wait() }
}
