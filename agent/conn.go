package agent

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// Conn is a connection to one agent. Its methods may be called from many
// goroutines at once. It is a [sandbox.Runner], and a [sandbox.Networker] for connections to the agent that can't pass
// descriptors.
type Conn struct {
	stream io.ReadWriteCloser
	frames *wire.Reader
	out    frameWriter
	hello  Hello
	done   chan struct{} // closed when the connection has ended; err is set then
	err    error

	asleep atomic.Bool // suspended
	net    *network

	mu       sync.Mutex
	last     uint32                 // number of the last call, question or socket
	calls    map[uint32]*call       // nil once the connection has ended
	answers  map[uint32]chan []byte // questions in flight: ping, limits
	teaching sync.Mutex
	sources  map[string]bool // keys of the Python sources that the agent has; guarded by teaching
}

var _ sandbox.Runner = (*Conn)(nil)

// Dial waits for the hello of an agent at the other end of a stream. It owns the stream
// from then on, and closes it on any error. ctx bounds the handshake only. Errors wrap [sandbox.ErrUnavailable], or
// [sandbox.ErrUnsupported] if the answer isn't our agent's.
func Dial(ctx context.Context, stream io.ReadWriteCloser) (*Conn, error) {
	c := &Conn{
		stream:  stream,
		frames:  wire.NewReader(stream),
		done:    make(chan struct{}),
		calls:   map[uint32]*call{},
		answers: map[uint32]chan []byte{},
		sources: map[string]bool{},
	}
	c.out.w, c.net = stream, newNetwork(c)
	shaken := make(chan error, 1)
	go func() { shaken <- c.handshake() }()
	var err error
	select {
	case err = <-shaken:
	case <-ctx.Done():
		stream.Close()
		<-shaken //nolint:errcheck // ctx is the cause
		err = fmt.Errorf("%w: the agent did not start in time: %w", sandbox.ErrUnavailable, ctx.Err())
	}
	if err != nil {
		c.stream.Close()
		return nil, err
	}
	go c.read()
	return c, nil
}

func (c *Conn) handshake() error {
	f, err := c.frames.Next()
	if err != nil && !errors.Is(err, wire.ErrProtocol) {
		return fmt.Errorf("%w: the agent did not answer: %w", sandbox.ErrUnavailable, err)
	}
	if err != nil || f.Type != wire.IsHello || json.Unmarshal(f.Payload, &c.hello) != nil || c.hello.Version != wire.Version {
		return fmt.Errorf("%w: the agent speaks another protocol", sandbox.ErrUnsupported)
	}
	return nil
}

// Hello returns the agent's message at the start.
func (c *Conn) Hello() Hello { return c.hello }

// Done is closed when the connection has ended, from either side.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the connection ended, nil before that; it wraps
// [sandbox.ErrLost].
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection, and with it every program. A second Close does
// nothing.
func (c *Conn) Close() error {
	c.end(fmt.Errorf("%w: the connection was closed", sandbox.ErrLost))
	return nil
}

// Ping checks that the agent answers.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Ping, nil)
	return err
}

// Limits reads the cgroup's limits again, see [Hello.Limits].
func (c *Conn) Limits(ctx context.Context) (map[string]string, error) {
	answer, err := c.ask(ctx, wire.Limits, nil)
	if err != nil {
		return nil, err
	}
	var limits map[string]string
	if err := json.Unmarshal(answer, &limits); err != nil {
		return nil, fmt.Errorf("%w: read the limits: %w", sandbox.ErrLost, wire.ErrProtocol)
	}
	return limits, nil
}

// Listens reports whether a program listens on a TCP port of the sandbox, at 127.0.0.1 or
// ::1. It connects to nothing.
func (c *Conn) Listens(ctx context.Context, port uint16) (bool, error) {
	answer, err := c.ask(ctx, wire.Port, binary.BigEndian.AppendUint16(nil, port))
	if err != nil {
		return false, err
	}
	if len(answer) != 1 {
		return false, fmt.Errorf("%w: look at a port: %w", sandbox.ErrLost, wire.ErrProtocol)
	}
	return answer[0] == 1, nil
}

// Put writes a file into the directory of the sandbox's secrets, as uid 0, and reads it
// back as programs do. mode is its permissions, of which those of the group are the
// programs'. An existing file of that name is replaced at once.
func (c *Conn) Put(ctx context.Context, name string, mode fs.FileMode, content []byte) error {
	payload := binary.BigEndian.AppendUint16(nil, uint16(mode.Perm()))
	payload = append(append(append(payload, name...), 0), content...)
	if strings.IndexByte(name, 0) >= 0 || len(payload) > wire.MaxFrame {
		return fmt.Errorf("%w: a file of %d bytes can't be put into the sandbox; the maximum is 1 MiB with its name", sandbox.ErrInvalid, len(content))
	}
	answer, err := c.ask(ctx, wire.Put, payload)
	if err != nil || len(answer) == 0 {
		return err
	}
	var refused wire.StartError
	if err := json.Unmarshal(answer, &refused); err != nil {
		return fmt.Errorf("%w: put a file: %w", sandbox.ErrLost, wire.ErrProtocol)
	}
	return fmt.Errorf("%w: put %s: %s", sandbox.ErrUnavailable, name, refused.Message)
}

// Suspend stops the time limits of all programs of the agent, until Resume or the end of
// the connection. It comes before the sandbox is paused. A paused agent that doesn't answer isn't given up. Call Resume
// even after an error, since the agent may have suspended.
func (c *Conn) Suspend(ctx context.Context) error {
	c.asleep.Store(true)
	_, err := c.ask(ctx, wire.Suspend, nil)
	return err
}

// Resume continues the time limits with the time that was left.
func (c *Conn) Resume(ctx context.Context) error {
	_, err := c.ask(ctx, wire.Resume, nil)
	c.asleep.Store(false)
	return err
}

// EndAll ends every running program with the given status, for a limit that is watched from outside, such as the
// disk's.
func (c *Conn) EndAll(status sandbox.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number := range c.calls {
		go func() { _ = c.out.write(wire.Kill, number, []byte(status)) }() // a connection that is lost has no programs
	}
	go func() { _ = c.out.write(wire.Kill, 0, []byte(status)) }() // and programs without a call
}

// Leave makes the agent end all programs and then itself. It returns when the connection has ended.
func (c *Conn) Leave(ctx context.Context) error {
	if err := c.send(wire.Leave, 0, nil); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("end the agent: %w", ctx.Err())
	}
}

func (c *Conn) ask(ctx context.Context, typ wire.Type, payload []byte) ([]byte, error) {
	number, answer, err := c.question()
	if err != nil {
		return nil, err
	}
	defer func() {
		c.mu.Lock()
		delete(c.answers, number)
		c.mu.Unlock()
	}()
	sent := make(chan error, 1)
	go func() { sent <- c.send(typ, number, payload) }() // it blocks if the agent reads nothing
	select {
	case err := <-sent:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the agent: %w", ctx.Err())
	}
	select {
	case payload := <-answer:
		return payload, nil
	case <-c.done:
		return nil, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("ask the agent: %w", ctx.Err())
	}
}

func (c *Conn) question() (uint32, chan []byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, nil, c.err
	}
	c.last++
	answer := make(chan []byte, 1)
	c.answers[c.last] = answer
	return c.last, answer, nil
}

// send writes a frame; a stream that can't be written is lost.
func (c *Conn) send(typ wire.Type, number uint32, payload []byte) error {
	if err := c.out.write(typ, number, payload); err != nil {
		c.end(fmt.Errorf("%w: write to the agent: %w", sandbox.ErrLost, err))
		return c.err
	}
	return nil
}

// end closes the connection once; later reasons are ignored.
func (c *Conn) end(err error) {
	c.mu.Lock()
	calls := c.calls
	if calls == nil {
		c.mu.Unlock()
		<-c.done
		return
	}
	c.calls, c.err = nil, err
	c.mu.Unlock()
	c.stream.Close()
	for _, call := range calls {
		call.lose()
	}
	c.net.lose(err)
	close(c.done)
}

// number returns a new number for a socket.
func (c *Conn) number() (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, c.err
	}
	c.last++
	return c.last, nil
}

// give registers a call under a new number.
func (c *Conn) give(call *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return c.err
	}
	c.last++
	call.number = c.last
	c.calls[call.number] = call
	return nil
}

func (c *Conn) drop(number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, number)
}

// teach sends a Python source once and returns its key.
func (c *Conn) teach(name, source string) (string, error) {
	sum := sha256.Sum256([]byte(name + "\n" + source))
	key := hex.EncodeToString(sum[:16])
	c.teaching.Lock() // not mu, because writing may take long and the reader needs mu
	defer c.teaching.Unlock()
	if c.sources[key] {
		return key, nil
	}
	payload := []byte(key + " " + name + "\n" + source)
	if len(payload) > wire.MaxFrame {
		return "", fmt.Errorf("%w: the python source of %s is larger than a frame", sandbox.ErrInvalid, name)
	}
	if err := c.out.write(wire.Source, 0, payload); err != nil {
		return "", fmt.Errorf("%w: write to the agent: %w", sandbox.ErrLost, err)
	}
	c.sources[key] = true
	return key, nil
}
