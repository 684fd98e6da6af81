package far

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/internal/relay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Port passes a connection to a program on, as the input and the output of an operation. It is a
// [sandbox.Process], so that the client can end it.
type Port struct {
	conn net.Conn
	done chan struct{} // closed once err is set
	err  error
}

// Pass passes bytes on in both directions until both have ended, and closes the connection.
func Pass(conn net.Conn, in io.Reader, out io.Writer) *Port {
	p := &Port{conn: conn, done: make(chan struct{})}
	var ways sync.WaitGroup
	var read, written error
	ways.Go(func() {
		if _, read = io.Copy(out, struct{ io.Reader }{conn}); read != nil {
			relay.Reset(conn)
		}
	})
	go func() { // it may wait for a silent client after everything has ended
		_, written = io.Copy(struct{ io.Writer }{conn}, in)
		half, ok := conn.(interface{ CloseWrite() error })
		if written != nil || !ok {
			relay.Reset(conn)
			return
		}
		_ = half.CloseWrite()
	}()
	go func() {
		ways.Wait()
		if p.err = read; p.err == nil {
			_ = conn.Close()
		}
		close(p.done)
	}()
	return p
}

// Wait implements [sandbox.Process].
func (p *Port) Wait(ctx context.Context) (sandbox.Result, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return sandbox.Result{}, ctx.Err()
	}
	if p.err != nil {
		return sandbox.Result{}, tool.Errorf(tool.Unavailable, "the connection to the program broke off").Because(p.err)
	}
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

// Kill implements [sandbox.Process].
func (p *Port) Kill() error {
	relay.Reset(p.conn)
	return nil
}

// Signal implements [sandbox.Process].
func (p *Port) Signal(string) error { return errNoProgram }

// Resize implements [sandbox.Process].
func (p *Port) Resize(sandbox.WinSize) error { return errNoProgram }

var errNoProgram = tool.Errorf(tool.Unsupported, "this is a connection, and no program")

// PortConn is the client's end of a [Port]: writes go to the operation's input, and reads come from
// its output.
type PortConn struct {
	net.Conn          // the end for reads
	out      net.Conn // the end for writes
	steer    sandbox.Process
	mu       sync.Mutex
	broke    error
}

// PortStart starts an operation on two streams and returns the connection to its process.
func PortStart(start func(in io.Reader, out io.Writer) (sandbox.Process, error)) (*PortConn, error) {
	inNear, inFar := net.Pipe()
	outNear, outFar := net.Pipe()
	p, err := start(inFar, outFar)
	if err != nil {
		for _, c := range []net.Conn{inNear, inFar, outNear, outFar} {
			_ = c.Close()
		}
		return nil, err
	}
	c := &PortConn{Conn: outNear, out: inNear, steer: p}
	go func() {
		if _, err := p.Wait(context.Background()); err != nil {
			c.mu.Lock()
			c.broke = syscall.ECONNRESET
			c.mu.Unlock()
		}
		_, _ = outFar.Close(), inFar.Close()
	}()
	return c, nil
}

// Read implements net.Conn. A broken connection is an error, not the end of the stream.
func (c *PortConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.broke != nil {
			err = c.broke
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *PortConn) Write(p []byte) (int, error) { return c.out.Write(p) }

// SetDeadline implements net.Conn.
func (c *PortConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *PortConn) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }

// CloseWrite ends the writes; the rest can still be read.
func (c *PortConn) CloseWrite() error { return c.out.Close() }

// Reset closes the connection so that the stream doesn't look complete.
func (c *PortConn) Reset() error {
	return errors.Join(c.steer.Kill(), c.out.Close(), c.Conn.Close())
}

// Close implements net.Conn.
func (c *PortConn) Close() error { return c.Reset() }
