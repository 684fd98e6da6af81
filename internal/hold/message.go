package hold

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Version is that of the operations' names and arguments. A holder says it with
// Taken; one of before it was introduced says nothing.
const Version = "5"

// versioned is what the names of a session's operations begin with on the wire, so
// that a holder of another version refuses them, and does nothing.
const versioned = Version + ":"

// The operations that the holder itself does. Their names never change.
const (
	opMetrics = "metrics" // what the holder has counted
	opStop    = "stop"    // end, also where it ends already
)

// Request is the first frame of an operation.
type Request struct {
	// Look has the operation count as no use of the session: the holder may become idle.
	Look bool            `json:"look,omitempty"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	// Started asks for a program that lives until it ends, is killed, or the
	// connection ends: the client steers it. Where the operation attaches to a program
	// that is there, the kill and the connection's end only end that.
	Started bool `json:"started,omitempty"`
	// Joins says so to the client's own process: the program goes on without the holder.
	Joins bool `json:"-"`

	By    string            `json:"by,omitempty"`    // who asks, for the log
	Ack   bool              `json:"ack,omitempty"`   // the client waits for Taken
	Call  string            `json:"call,omitempty"`  // the client's id of the call
	Trace map[string]string `json:"trace,omitempty"` // W3C Trace Context of who asks

	// What the caller of a tool asked for beside.
	Progress bool          `json:"progress,omitempty"`
	Polling  time.Duration `json:"polling,omitempty"`

	// Which streams there are.
	Stdin  bool `json:"stdin,omitempty"`
	Stdout bool `json:"stdout,omitempty"`
	Stderr bool `json:"stderr,omitempty"`
	Conn   bool `json:"conn,omitempty"` // the client takes a connection
}

// Streams are those of an operation; nil ones are not there.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Conn takes a connection, which is then its own, before the answer.
	Conn func(net.Conn) error
}

// Noting are streams of which touched says whether input was read or output written.
func Noting(s Streams) (noting Streams, touched func() bool) {
	var any atomic.Bool
	if s.Stdin != nil {
		s.Stdin = notedReader{s.Stdin, &any}
	}
	if s.Stdout != nil {
		s.Stdout = notedWriter{s.Stdout, &any}
	}
	return s, any.Load
}

type notedReader struct {
	io.Reader
	any *atomic.Bool
}

func (r notedReader) Read(p []byte) (int, error) {
	r.any.Store(true)
	return r.Reader.Read(p)
}

type notedWriter struct {
	io.Writer
	any *atomic.Bool
}

func (w notedWriter) Write(p []byte) (int, error) {
	w.any.Store(true)
	return w.Writer.Write(p)
}

// Answer is what an operation of a session answers.
type Answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Text  string          `json:"text,omitempty"`
	Blobs []tool.Blob     `json:"blobs,omitempty"`
	journal.Outcome
}

// complete adds what comes from the context and the streams.
func (r Request) complete(ctx context.Context, io Streams) Request {
	r.By, r.Ack, r.Trace = journal.CallerOf(ctx), true, traceOf(ctx)
	r.Progress, r.Polling = tool.Progress(ctx) != nil, tool.Polling(ctx)
	r.Stdin, r.Stdout, r.Stderr, r.Conn = io.Stdin != nil, io.Stdout != nil, io.Stderr != nil, io.Conn != nil
	return r
}

// context is the inverse of complete.
func (r Request) context(ctx context.Context) context.Context {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(r.Trace))
	return tool.WithPolling(tool.WithCaller(ctx, r.By), r.Polling)
}

func traceOf(ctx context.Context) map[string]string {
	out := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, out)
	return out
}

// Session is what a holder serves. Its methods may be called from many goroutines
// at once.
type Session interface {
	// Do does one operation; the end of ctx ends it.
	Do(ctx context.Context, req Request, io Streams) (*Answer, error)
	// Start starts a program, or attaches to one.
	Start(ctx context.Context, req Request, io Streams) (sandbox.Process, error)
	// Busy reports whether the holder's end would cut something off, or lose it.
	Busy() bool
	// Empty removes the sandbox; the next program has another one.
	Empty(ctx context.Context) error
}
