package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// conn is a connection over lines, from which the SDK reads messages. Unlike the SDK's own it survives invalid
// messages, and it limits unanswered requests and unwritten answers.
type conn struct {
	in    io.ReadCloser
	out   *output
	drain time.Duration // how long it waits for answers at the end of the input
	turns turns         // for notifications about tasks

	lines  chan line
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when one of these changes
	waiting map[jsonrpc.ID]*request
	count   int // requests without a written answer
	bytes   int // of them
}

// request is a request without an answer.
type request struct {
	size      int  // bytes
	cancelled bool // its client wants no answer any more
}

func newConn(in io.ReadCloser, out io.Writer, drain time.Duration) *conn {
	c := &conn{
		in: in, out: newOutput(out), drain: drain,
		lines: make(chan line), closed: make(chan struct{}),
		changed: make(chan struct{}), waiting: map[jsonrpc.ID]*request{}, turns: make(turns, 1),
	}
	go c.readLines()
	return c
}

// Connect makes c its own transport.
func (c *conn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID is empty: a pipe has one session.
func (c *conn) SessionID() string { return "" }

// readLines reads until the input ends, or until the first line after close.
func (c *conn) readLines() {
	defer close(c.lines)
	r := bufio.NewReaderSize(c.in, 64<<10)
	for {
		l, err := readLine(r, maxLine)
		if err != nil {
			return
		}
		if l.blank() {
			continue
		}
		select {
		case c.lines <- l:
		case <-c.closed:
			return
		}
	}
}

// Read returns the next message. It returns an error only at the end.
func (c *conn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		if err := c.awaitRoom(); err != nil {
			return nil, err
		}
		select {
		case <-c.closed:
			return nil, io.EOF
		case l, more := <-c.lines:
			if !more {
				c.awaitAnswers()
				return nil, io.EOF
			}
			message, refused := c.accept(l)
			if refused == nil {
				return message, nil
			}
			if err := c.out.write(ctx, refused.line()); err != nil {
				return nil, err
			}
		}
	}
}

func (c *conn) accept(l line) (jsonrpc.Message, *refusal) {
	message, refused := decode(l)
	asked, ok := message.(*jsonrpc.Request)
	if refused != nil || !ok {
		return message, refused
	}
	if !asked.IsCall() {
		c.noteCancel(asked)
		return message, nil
	}
	if asked.Method == ownListen {
		return nil, &refusal{id: envelopeOf(l).ID, code: jsonrpc.CodeMethodNotFound, message: "method not found"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[asked.ID] != nil {
		return nil, &refusal{id: envelopeOf(l).ID, code: jsonrpc.CodeInvalidRequest, message: "another request with this id waits for its answer"}
	}
	size := len(l.text)
	if asked.Method == fetchMethod {
		size += fetchWeight
	}
	c.waiting[asked.ID] = &request{size: size}
	rename(asked)
	c.count, c.bytes = c.count+1, c.bytes+size
	return message, nil
}

// noteCancel notes that a request gets no answer, as the protocol wants it once its client has
// cancelled it.
func (c *conn) noteCancel(notification *jsonrpc.Request) {
	if id, ok := cancelledBy(notification.Method, notification.Params); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		if waits := c.waiting[id]; waits != nil {
			waits.cancelled = true
		}
	}
}

// cancelledBy returns the ID that a notification cancels.
func cancelledBy(method string, params json.RawMessage) (id jsonrpc.ID, ok bool) {
	var cancel struct {
		ID any `json:"requestId"`
	}
	if method != "notifications/cancelled" || json.Unmarshal(params, &cancel) != nil {
		return id, false
	}
	id, err := jsonrpc.MakeID(cancel.ID)
	return id, err == nil && id.IsValid()
}

// Write sends a message and returns when it is written, or when the connection is closed.
func (c *conn) Write(ctx context.Context, message jsonrpc.Message) error {
	response, ok := message.(*jsonrpc.Response)
	if ok && response.Error != nil {
		said := *response
		said.Error = presentable(response.Error)
		message = &said
	}
	raw, err := jsonrpc.EncodeMessage(message)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	if !ok {
		return c.out.write(ctx, raw)
	}
	answered := c.answered(response.ID)
	defer c.written(answered)
	if answered != nil && answered.cancelled {
		return nil
	}
	return c.out.write(ctx, raw)
}

// answered frees the ID, before the client can know, and returns its request; nil if there was none.
func (c *conn) answered(id jsonrpc.ID) *request {
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := c.waiting[id]
	delete(c.waiting, id)
	return waits
}

func (c *conn) written(r *request) {
	if r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count, c.bytes = c.count-1, c.bytes-r.size
	close(c.changed)
	c.changed = make(chan struct{})
}

// awaitRoom waits while too many requests are unanswered.
func (c *conn) awaitRoom() error {
	return c.await(context.Background(), func() bool { return c.count < maxUnanswered && c.bytes < maxUnansweredB })
}

// awaitAnswers waits a short time for the remaining answers.
func (c *conn) awaitAnswers() {
	ctx, cancel := context.WithTimeout(context.Background(), c.drain)
	defer cancel()
	_ = c.await(ctx, func() bool { return c.count == 0 })
}

func (c *conn) await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		done, changed := holds(), c.changed
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-c.closed:
			return io.EOF
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close unblocks reads and writes. It may be called several times.
func (c *conn) Close() error {
	var err error
	c.once.Do(func() {
		close(c.closed)
		c.out.close()
		err = c.in.Close()
	})
	return err
}

type connKey struct{}

// awaitTaken waits while the client has too many unread answers: calls begin only when there is room for their results.
func awaitTaken(ctx context.Context) error {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		return nil
	}
	return c.out.awaitTaken(ctx)
}

var errClosed = errors.New("the connection is closed")
