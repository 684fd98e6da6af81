package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/wisbox/wisbox/sandbox"
)

// Conn is a connection to one agent. Its methods may be called from many
// goroutines at once. It is a [sandbox.Runner].
type Conn struct {
	stream io.ReadWriteCloser
	frames *frameReader
	out    frameWriter
	hello  Hello
	done   chan struct{} // closed when the connection has ended; err is set then
	err    error

	mu      sync.Mutex
	last    uint32                 // number of the last call or question
	calls   map[uint32]*call       // nil once the connection has ended
	answers map[uint32]chan []byte // questions in flight: ping, limits
	sources map[string]bool        // keys of the Python sources that the agent has
}

var _ sandbox.Runner = (*Conn)(nil)

// Dial hands the agent over to a stream whose other end runs [Command], and
// waits for its hello. It owns the stream from then on, and closes it on any
// error. ctx bounds the handshake only. Errors wrap [sandbox.ErrUnavailable],
// or [sandbox.ErrUnsupported] where something answers that is not our agent.
func Dial(ctx context.Context, stream io.ReadWriteCloser, opts *Options) (*Conn, error) {
	c := &Conn{
		stream:  stream,
		frames:  newFrameReader(stream),
		done:    make(chan struct{}),
		calls:   map[uint32]*call{},
		answers: map[uint32]chan []byte{},
		sources: map[string]bool{},
	}
	c.out.w = stream
	shaken := make(chan error, 1)
	go func() { shaken <- c.handshake(ctx, opts.withDefaults()) }()
	var err error
	select {
	case err = <-shaken:
	case <-ctx.Done():
		stream.Close()
		<-shaken
		err = fmt.Errorf("%w: the agent did not start in time: %w", sandbox.ErrUnavailable, ctx.Err())
	}
	if err != nil {
		c.stream.Close()
		return nil, err
	}
	go c.read()
	return c, nil
}

func (c *Conn) handshake(ctx context.Context, opts *Options) error {
	if err := handOver(c.stream, opts); err != nil {
		return fmt.Errorf("%w: hand the agent over: %w", sandbox.ErrUnavailable, err)
	}
	f, err := c.frames.next()
	if errors.Is(err, errProtocol) {
		return fmt.Errorf("%w: python 3.9 or newer is needed: %w", sandbox.ErrUnsupported, err)
	}
	if err != nil {
		return fmt.Errorf("%w: the agent did not answer: %w", sandbox.ErrUnavailable, err)
	}
	if f.typ != typeHello || json.Unmarshal(f.payload, &c.hello) != nil || c.hello.Version != version {
		return fmt.Errorf("%w: the agent speaks another protocol", sandbox.ErrUnsupported)
	}
	return c.goDirect(ctx, opts.PID)
}

// Hello is what the agent said at the start.
func (c *Conn) Hello() Hello { return c.hello }

// Direct tells whether the frames go by the agent's own socket, see [Options.PID].
func (c *Conn) Direct() bool {
	_, yes := c.stream.(both)
	return yes
}

// Done is closed when the connection has ended, from either side.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err tells why the connection ended, nil before that; it wraps
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

// Ping asks the agent for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.ask(ctx, typePing)
	return err
}

// Limits reads the cgroup's limits again, see [Hello.Limits].
func (c *Conn) Limits(ctx context.Context) (map[string]string, error) {
	answer, err := c.ask(ctx, typeLimits)
	if err != nil {
		return nil, err
	}
	var limits map[string]string
	if err := json.Unmarshal(answer, &limits); err != nil {
		return nil, fmt.Errorf("%w: read the limits: %w", sandbox.ErrLost, errProtocol)
	}
	return limits, nil
}

// EndAll ends every program that runs, with the status given: for a limit that
// is watched from outside, as that of the disk.
func (c *Conn) EndAll(status sandbox.Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number := range c.calls {
		go c.out.write(typeKill, number, []byte(status))
	}
}

func (c *Conn) ask(ctx context.Context, typ frameType) ([]byte, error) {
	number, answer, err := c.question()
	if err != nil {
		return nil, err
	}
	defer func() {
		c.mu.Lock()
		delete(c.answers, number)
		c.mu.Unlock()
	}()
	if err := c.send(typ, number, nil); err != nil {
		return nil, err
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
func (c *Conn) send(typ frameType, number uint32, payload []byte) error {
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
	close(c.done)
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

// teach sends a Python source once and gives its key.
func (c *Conn) teach(name, source string) (string, error) {
	sum := sha256.Sum256([]byte(name + "\n" + source))
	key := hex.EncodeToString(sum[:16])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources[key] {
		return key, nil
	}
	payload := []byte(key + " " + name + "\n" + source)
	if len(payload) > maxFrame {
		return "", fmt.Errorf("%w: the python source of %s is larger than a frame", sandbox.ErrInvalid, name)
	}
	if err := c.out.write(typeSource, 0, payload); err != nil {
		return "", fmt.Errorf("%w: write to the agent: %w", sandbox.ErrLost, err)
	}
	c.sources[key] = true
	return key, nil
}
