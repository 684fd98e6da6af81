package resident

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	dialTries = 3 // of a link that breaks, as a service under load does now and then
)

var dialTimeout = patience.For(20 * time.Second) // from nothing to the handshake

// Options of an Agent. Link is required.
type Options struct {
	Link Link
	// Explain reports what the error of a connection that didn't come about means to
	// callers. Nil leaves it.
	Explain func(ctx context.Context, cause error) error
	// Check refuses an agent that isn't the one that was meant. Nil takes any.
	Check func(hello agent.Hello) error
	// Revive makes the sandbox fit for another connection after one was lost for
	// that reason. Nil does nothing.
	Revive func(ctx context.Context, lost error) error
	// Logger gets what callers don't see; nil is slog.Default().
	Logger *slog.Logger
}

// Agent is the host's handle on one agent. All callers share a connection, which the
// first one makes; when it is lost the next call makes another. Its methods may be
// called from many goroutines.
type Agent struct {
	opts Options
	life context.Context // ends with the handle
	end  context.CancelFunc

	mu      sync.Mutex
	dialed  uint64            // how many connections were begun
	last    *dialing          // nil before the first call
	secrets map[string][]byte // the files of sandbox.SecretsDir

	handing sync.Mutex // held while secrets are written
}

// New makes a handle. It connects to nothing yet.
func New(opts *Options) *Agent {
	a := &Agent{opts: *opts, secrets: map[string][]byte{}}
	if a.opts.Logger == nil {
		a.opts.Logger = slog.Default()
	}
	if a.opts.Explain == nil {
		a.opts.Explain = func(_ context.Context, cause error) error { return cause }
	}
	if a.opts.Check == nil {
		a.opts.Check = func(agent.Hello) error { return nil }
	}
	if a.opts.Revive == nil {
		a.opts.Revive = func(context.Context, error) error { return nil }
	}
	a.life, a.end = context.WithCancel(context.Background())
	return a
}

// dialing is one connection: on its way until done is closed, then conn or err.
type dialing struct {
	number  uint64
	done    chan struct{}
	conn    *agent.Conn
	sockets *agent.Sockets // nil where the link carries no descriptors
	err     error
}

// usable reports whether callers should wait for it or use it.
func (d *dialing) usable() bool {
	select {
	case <-d.done:
		return d.err == nil && d.conn.Err() == nil
	default:
		return true
	}
}

// close may be called again.
func (d *dialing) close() error {
	var err error
	if d.conn != nil {
		err = d.conn.Close()
	}
	if d.sockets != nil {
		if closed := d.sockets.Close(); !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
	}
	return err
}

// Conn returns the connection. The first caller makes it, others wait for the same;
// a caller that gives up doesn't stop it.
func (a *Agent) Conn(ctx context.Context) (*agent.Conn, error) {
	d, err := a.connected(ctx)
	return d.conn, err
}

// Generation numbers the connection, and makes one where the last was lost: only then can
// the sandbox have been started again.
func (a *Agent) Generation(ctx context.Context) (uint64, error) {
	d, err := a.connected(ctx)
	return d.number, err
}

// Sockets asks for sockets of the agent's network. It is the connection's: once that is
// lost, another one has another. It wraps [sandbox.ErrUnsupported] where the link
// carries no descriptors.
func (a *Agent) Sockets(ctx context.Context) (*agent.Sockets, error) {
	d, err := a.connected(ctx)
	if err == nil && d.sockets == nil {
		err = fmt.Errorf("%w: the sandbox can't hand over sockets: its agent is reached through a stream", sandbox.ErrUnsupported)
	}
	return d.sockets, err
}

// Network returns the network of the agent's sandbox: by its sockets, or carried by frames
// where the link carries no descriptors. It is the connection's, as they are.
func (a *Agent) Network(ctx context.Context) (sandbox.Networker, error) {
	d, err := a.connected(ctx)
	switch {
	case err != nil:
		return nil, err
	case d.sockets == nil:
		return d.conn, nil
	}
	return d.sockets, nil
}

func (a *Agent) connected(ctx context.Context) (*dialing, error) {
	d := a.dialing()
	select {
	case <-d.done:
		return d, d.err
	case <-ctx.Done():
		return &dialing{}, fmt.Errorf("%w: gave up waiting for the sandbox's agent", ctx.Err())
	}
}

func (a *Agent) dialing() *dialing {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.last
	if last != nil && last.usable() {
		return last
	}
	a.dialed++
	d := &dialing{number: a.dialed, done: make(chan struct{})}
	a.last = d
	go func() {
		defer close(d.done)
		a.open(d, last)
		if d.err != nil && a.life.Err() != nil {
			d.err = errClosed
		}
	}()
	return d
}

var errClosed = fmt.Errorf("%w: this handle was closed; open the sandbox again", sandbox.ErrLost)

// open makes the connection d; last is the one before, which was lost.
func (a *Agent) open(d, last *dialing) {
	ctx, cancel := context.WithTimeout(a.life, dialTimeout)
	defer cancel()
	if d.err = ctx.Err(); d.err != nil {
		return
	}
	if last == nil {
		d.err = a.dialAgain(ctx, d)
		return
	}
	if d.err = a.revive(ctx, last); d.err != nil {
		return
	}
	if d.err = a.dialAgain(ctx, d); d.err != nil {
		return
	}
	if err := a.putSecrets(ctx, d.conn, a.secretNames()); err != nil {
		d.err = errors.Join(err, d.close())
	}
}

func (a *Agent) revive(ctx context.Context, last *dialing) error {
	cause := last.err
	if cause == nil {
		cause = last.conn.Err()
	}
	if err := last.close(); err != nil {
		a.opts.Logger.Debug("close a lost connection", "error", err)
	}
	a.opts.Logger.Warn("agent lost", "error", cause)
	return a.opts.Revive(ctx, cause)
}

func (a *Agent) dialAgain(ctx context.Context, d *dialing) (err error) {
	wait := &wait{100 * time.Millisecond}
	for range dialTries {
		if err = a.dial(ctx, d); err == nil || !brokeOff(err) || !wait.next(ctx) {
			return err
		}
	}
	return err
}

// brokeOff: nothing was refused, the way there broke.
func brokeOff(err error) bool {
	var op *net.OpError
	return errors.Is(err, sandbox.ErrUnavailable) && (errors.As(err, &op) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE))
}

func (a *Agent) dial(ctx context.Context, d *dialing) error {
	ends, err := a.opts.Link.Dial(ctx)
	if err != nil {
		return a.opts.Explain(ctx, err)
	}
	conn, err := agent.Dial(ctx, ends.Frames)
	if err == nil {
		if err = a.opts.Check(conn.Hello()); err == nil {
			d.conn = conn
			if ends.Descriptors != nil {
				d.sockets = agent.NewSockets(ends.Descriptors)
			}
			return nil
		}
		_ = conn.Close()
	}
	_ = ends.Close() // the frames may be closed already
	return a.opts.Explain(ctx, err)
}

// With gives op the connection, and once more another when the agent was lost
// before op's program began.
func (a *Agent) With(ctx context.Context, op func(*agent.Conn) error) error {
	if a.life.Err() != nil {
		return errClosed
	}
	for try := 1; ; try++ {
		conn, err := a.Conn(ctx)
		if err != nil {
			return err
		}
		err = op(conn)
		if try == 2 || !errors.Is(err, sandbox.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// Suspend stops the time limits of all programs in the sandbox, until resume or the end of
// the connection; without a connection nobody hears it.
func (a *Agent) Suspend(ctx context.Context) (resume func(context.Context)) {
	conn := a.current()
	if conn == nil {
		return func(context.Context) {}
	}
	if err := conn.Suspend(ctx); err != nil {
		a.opts.Logger.Debug("suspend time limits", "error", err)
	}
	return func(ctx context.Context) {
		if err := conn.Resume(ctx); err != nil {
			a.opts.Logger.Debug("resume time limits", "error", err)
		}
	}
}

// current returns the connection that there is, nil without one.
func (a *Agent) current() *agent.Conn {
	a.mu.Lock()
	d := a.last
	a.mu.Unlock()
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return d.conn
	default:
		return nil
	}
}

// EndAll ends every program that this handle runs, with the status given. It makes
// no connection and doesn't wait for the programs to end.
func (a *Agent) EndAll(status sandbox.Status) {
	if conn := a.current(); conn != nil { // else no program runs yet
		conn.EndAll(status)
	}
}

// Close gives up the handle: its programs end.
func (a *Agent) Close() error {
	a.end()
	a.mu.Lock()
	d := a.last
	a.mu.Unlock()
	if d == nil {
		return nil
	}
	<-d.done
	return d.close()
}
