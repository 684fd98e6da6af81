package wisbox

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"

	"github.com/wisbox/wisbox/internal/holdwire"
	"github.com/wisbox/wisbox/sandbox"
)

// stdinWindow is how many bytes of input a client may send ahead of what the
// program has read. The holder's reader so never waits for a program, and sees
// signals and the client's end at once.
const stdinWindow = 256 << 10

// run runs one program for a client: the connection's end kills it.
func (h *holder) run(ctx context.Context, c *holdwire.Conn, w wireCmd) error {
	cmd := sandbox.Cmd{Argv: w.Argv, Dir: w.Dir, Env: w.Env, Timeout: w.Timeout, TTY: w.TTY}
	in := newInbox(func(n int) {
		_ = c.Send(holdwire.Stdin, binary.BigEndian.AppendUint32(nil, uint32(n)))
	})
	defer in.end()
	if w.Stdin {
		cmd.Stdin = in
	}
	started := make(chan struct{})
	if !w.Quiet[0] {
		cmd.Stdout = gated{c.Writer(holdwire.Stdout), started}
	}
	if !w.Quiet[1] {
		cmd.Stderr = gated{c.Writer(holdwire.Stderr), started}
	}
	p, err := h.s.Start(ctx, cmd)
	if err != nil {
		return err
	}
	_ = c.Send(holdwire.Started, nil) // to a client that is gone: steer sees it
	close(started)
	go func() {
		steer(c, p, in)
		_ = p.Kill()
	}()
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	res, err := p.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	return c.SendJSON(holdwire.Answer, res)
}

// gated holds output back until the client knows that the program was started.
type gated struct {
	w    io.Writer
	open <-chan struct{}
}

func (g gated) Write(p []byte) (int, error) {
	<-g.open
	return g.w.Write(p)
}

// steer passes a client's frames on until it is gone.
func steer(c *holdwire.Conn, p sandbox.Process, in *inbox) {
	for {
		kind, payload, err := c.Receive()
		if err != nil {
			return
		}
		switch kind {
		case holdwire.Stdin:
			if !in.put(payload) {
				return
			}
		case holdwire.StdinEnd:
			in.end()
		case holdwire.Signal:
			_ = p.Signal(string(payload))
		case holdwire.Resize:
			var size sandbox.WinSize
			if json.Unmarshal(payload, &size) == nil {
				_ = p.Resize(size)
			}
		case holdwire.Kill:
			return
		}
	}
}

// inbox is input that came and wasn't read yet: at most a window of it.
type inbox struct {
	consumed func(int)

	mu   sync.Mutex
	more *sync.Cond
	data []byte
	done bool
}

func newInbox(consumed func(int)) *inbox {
	b := &inbox{consumed: consumed}
	b.more = sync.NewCond(&b.mu)
	return b
}

// put adds input; false says that the client ignores the window.
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

func (b *inbox) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = true
	b.more.Broadcast()
}

// Read waits for input; after end it gives what is left, then io.EOF.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.data) == 0 && !b.done {
		b.more.Wait()
	}
	if len(b.data) == 0 {
		b.mu.Unlock()
		return 0, io.EOF
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	b.mu.Unlock()
	b.consumed(n)
	return n, nil
}
