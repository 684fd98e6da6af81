// Package far carries many connections over one stream to another machine. It has the client, which
// reconnects when the stream breaks, and the other machine's side. It doesn't interpret the bytes
// of the connections.
//
// Both sides begin with one line, the other machine first, by which each learns the other's
// version; yamux follows. The client skips anything before the other machine's line, such as a
// greeting of its shell.
//
//	line    wisbox-relay {"version":"…","protocol":"…"}
package far

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// Hello is how each side introduces itself.
type Hello struct {
	Version  string `json:"version"`  // of wisbox, for people
	Protocol string `json:"protocol"` // must be the same on both sides
}

const (
	greeting    = "wisbox-relay "
	maxGreeting = 64 << 10 // bytes up to the end of the line
	pingEvery   = 15 * time.Second
	window      = 1 << 20 // unread bytes of one connection
)

var (
	helloTime = patience.For(60 * time.Second)
	writeTime = patience.For(30 * time.Second) // a stream that accepts nothing for this long is broken
	closeTime = patience.For(10 * time.Second) // for the other side to close a connection
)

// Way opens streams to the other machine.
type Way interface {
	// Connect opens a stream to the other machine's relay. The stream outlives ctx.
	Connect(ctx context.Context) (io.ReadWriteCloser, error)
	// Explain turns err, the end of a stream without a hello, into an error for people.
	Explain(stream io.ReadWriteCloser, err error) error
	// String returns the name of the other machine.
	String() string
}

// Func is a way that calls a function.
type Func struct {
	Name string
	Dial func(ctx context.Context) (io.ReadWriteCloser, error)
}

// Connect implements [Way].
func (f Func) Connect(ctx context.Context) (io.ReadWriteCloser, error) {
	s, err := f.Dial(ctx)
	if err != nil && ctx.Err() == nil {
		err = tool.Errorf(tool.Unavailable, "%s can't be reached: %s", f.Name, tool.AsError(err).Message).Because(err)
	}
	return s, err
}

// Explain implements [Way].
func (f Func) Explain(_ io.ReadWriteCloser, err error) error {
	return tool.Errorf(tool.Unavailable, "%s sent no greeting of wisbox", f.Name).Because(err)
}

// String implements [Way].
func (f Func) String() string { return f.Name }

// Client opens connections to another machine. Its methods may be called from many goroutines at
// once.
type Client struct {
	way   Way
	hello Hello
	ctx   context.Context // ends with Close
	end   context.CancelFunc

	mu  *lock.Mutex // held while a stream is opened
	mux *yamux.Session
}

// NewClient returns a Client that connects at its first Dial. Close it when done.
func NewClient(way Way, hello Hello) *Client {
	c := &Client{way: way, hello: hello, mu: lock.New()}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// Machine returns the name of the other machine.
func (c *Client) Machine() string { return c.way.String() }

// Dial opens a connection. If the stream has broken, it opens a new one.
func (c *Client) Dial(ctx context.Context) (net.Conn, error) {
	if err := c.mu.Lock(ctx); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil, errClosed
	}
	if c.mux != nil && !c.mux.IsClosed() {
		if s, err := c.mux.OpenStream(); err == nil {
			return conn{s}, nil
		}
		_ = c.mux.Close()
	}
	mux, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mux = mux
	s, err := mux.OpenStream()
	if err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the connection to %s broke as it began; call again", c.way).Because(err)
	}
	return conn{s}, nil
}

var errClosed = tool.Errorf(tool.Closed, "the manager is closed")

// Close closes the stream, and with it all connections. It ends a Dial that is waiting.
func (c *Client) Close() error {
	c.end()
	_ = c.mu.Lock(context.Background()) // can't fail
	defer c.mu.Unlock()
	if c.mux == nil {
		return nil
	}
	return c.mux.Close()
}

func (c *Client) connect(caller context.Context) (*yamux.Session, error) {
	ctx, cancel := context.WithTimeout(caller, helloTime)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	stream, err := c.way.Connect(ctx)
	switch {
	case err != nil && c.ctx.Err() != nil:
		return nil, errClosed
	case err != nil:
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() })
	theirs, in, err := c.greet(stream)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	switch {
	case c.ctx.Err() != nil:
		err = errClosed
	case caller.Err() != nil:
		err = caller.Err()
	case ctx.Err() != nil:
		err = tool.Errorf(tool.Unavailable, "%s doesn't answer: it sent no greeting of wisbox within %s; %s", c.way, helloTime, c.advice()).Because(err)
	case err != nil:
		err = c.way.Explain(stream, err)
	case theirs.Protocol != c.hello.Protocol:
		err = tool.Errorf(tool.Unsupported, "this is wisbox %s, and %s has wisbox %s, which speaks another protocol (%s here, %s there); install the same version on both",
			c.hello.Version, c.way, clip.Text(theirs.Version), c.hello.Protocol, clip.Text(theirs.Protocol))
	}
	if err != nil {
		_ = stream.Close()
		return nil, err
	}
	return yamux.Client(joined{&frames{in: in, client: true}, stream}, config())
}

// advice returns what to try if nobody answers.
func (c *Client) advice() string {
	if of, ok := c.way.(interface{ Advice() string }); ok {
		return of.Advice()
	}
	return "try: ssh " + c.way.String() + " wisbox version"
}

// greet receives a hello and answers it.
func (c *Client) greet(stream io.ReadWriter) (theirs Hello, in io.Reader, err error) {
	if theirs, in, err = hear(stream); err == nil {
		err = say(stream, c.hello)
	}
	return theirs, in, err
}

func say(w io.Writer, h Hello) error {
	raw, err := json.Marshal(h)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", greeting, raw)
	}
	return err
}

// hear reads until the end of the other side's hello. The caller must read the rest from in.
func hear(r io.Reader) (h Hello, in io.Reader, err error) {
	limited := &io.LimitedReader{R: r, N: maxGreeting}
	buffered := bufio.NewReader(limited)
	for {
		line, err := buffered.ReadBytes('\n')
		if err != nil {
			return h, nil, err
		}
		if text, ok := bytes.CutPrefix(line, []byte(greeting)); ok {
			limited.N = 1 << 62
			return h, buffered, json.Unmarshal(text, &h)
		}
	}
}

// joined reads buffered bytes first.
type joined struct {
	io.Reader
	stream io.ReadWriteCloser
}

func (j joined) Write(p []byte) (int, error) { return j.stream.Write(p) }
func (j joined) Close() error                { return j.stream.Close() }

func config() *yamux.Config {
	c := yamux.DefaultConfig()
	c.KeepAliveInterval, c.ConnectionWriteTimeout, c.StreamCloseTimeout = pingEvery, writeTime, closeTime
	c.MaxStreamWindowSize, c.LogOutput = window, io.Discard
	return c
}

var past = time.Unix(1, 0)

// conn is a connection whose Close also ends its pending reads.
type conn struct{ *yamux.Stream }

// Close implements net.Conn.
func (c conn) Close() error {
	err := c.Stream.Close()
	return errors.Join(err, c.SetDeadline(past))
}

// Serve serves the other machine's side: it calls serve for each connection, in its own goroutine,
// until the stream or ctx ends. It then cancels the context of serve and waits for all calls.
func Serve(ctx context.Context, stream io.ReadWriteCloser, hello Hello, serve func(context.Context, net.Conn)) error {
	return answer(ctx, stream, hello, config(), func(*yamux.Session) bool { return false }, serve)
}

func answer(ctx context.Context, stream io.ReadWriteCloser, hello Hello, config *yamux.Config, full func(*yamux.Session) bool, serve func(context.Context, net.Conn)) error {
	defer stream.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = stream.Close() })()
	if err := say(stream, hello); err != nil {
		return err
	}
	late := time.AfterFunc(helloTime, func() { _ = stream.Close() })
	theirs, in, err := hear(stream)
	late.Stop()
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the other side sent no greeting of wisbox").Because(err)
	}
	if theirs.Protocol != hello.Protocol {
		return nil // the client reports the difference
	}
	mux, err := yamux.Server(joined{&frames{in: in}, stream}, config)
	if err != nil {
		return err
	}
	// A read of yamux 0.1.2 loops without a pause from the end of its session until the session has
	// closed the connection. Many such reads delay that by seconds; a past deadline ends them.
	var all sync.WaitGroup
	for {
		s, err := mux.AcceptStream()
		if err != nil || full(mux) {
			cancel()
			_ = mux.Close()
			all.Wait()
			return nil
		}
		all.Go(func() {
			c := conn{s}
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(past) })()
			serve(ctx, c)
		})
	}
}
