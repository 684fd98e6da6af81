package hold

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

// Version is the version of the operations' names and arguments. A holder sends it with Taken;
// holders from before its introduction send nothing.
const Version = "7"

// versioned is the prefix of operations' names on the wire, which makes holders of another version
// refuse them.
const versioned = Version + ":"

// Operations of the holder itself. Their names never change.
const (
	opMetrics = "metrics" // the holder's counters
	opStop    = "stop"    // end, even while it is ending
)

// Request is the first frame of an operation.
type Request struct {
	// Session is the session's name, for a server of many.
	Session string `json:"session,omitempty"`
	// Look means that the operation doesn't count as use of the session: the holder may become
	// idle.
	Look bool            `json:"look,omitempty"`
	Op   string          `json:"op"`
	Args json.RawMessage `json:"args,omitempty"`
	// Started requests a program that lives until it ends, is killed, or the connection ends; the
	// client steers it. If the operation attaches to an existing program, a kill and the
	// connection's end only end the attachment.
	Started bool `json:"started,omitempty"`
	// Joins marks such an attachment in the client's own process: the program continues without the
	// holder.
	Joins bool `json:"-"`

	By     string            `json:"by,omitempty"`     // the client's name, for the log
	Client string            `json:"client,omitempty"` // its identity, if that is another one
	Ack    bool              `json:"ack,omitempty"`    // the client waits for Taken
	Go     bool              `json:"go,omitempty"`     // and answers it with Go
	Call   string            `json:"call,omitempty"`   // the client's id of the call
	Trace  map[string]string `json:"trace,omitempty"`  // W3C Trace Context of the caller

	// Further wishes of a tool's caller.
	Progress bool          `json:"progress,omitempty"`
	Polling  time.Duration `json:"polling,omitempty"`

	// Streams that the operation has.
	Stdin  bool `json:"stdin,omitempty"`
	Stdout bool `json:"stdout,omitempty"`
	Stderr bool `json:"stderr,omitempty"`
	Conn   bool `json:"conn,omitempty"` // the client accepts a connection
}

// Streams are the streams of an operation; nil means that it lacks one.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Signals are for the operation's program, by their names without SIG.
	Signals <-chan string
	// Conn takes ownership of a connection, before the answer.
	Conn func(net.Conn) error
}

// Noting returns streams and a function that reports whether input was read or output written.
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

// Answer is a session's answer to an operation.
type Answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Text  string          `json:"text,omitempty"`
	Blobs []answer.Blob   `json:"blobs,omitempty"`
	journal.Outcome
}

// Propagator carries the caller's trace from the context of a client to that of the holder, as W3C Trace Context. It is
// nil in programs without OpenTelemetry. Set it before the first operation.
var Propagator interface {
	Inject(ctx context.Context) map[string]string
	Extract(ctx context.Context, trace map[string]string) context.Context
}

// complete adds values of the context and the streams.
func (r Request) complete(ctx context.Context, io Streams) Request {
	r.By, r.Client, r.Ack = journal.CallerOf(ctx), answer.Client(ctx), true
	if Propagator != nil {
		r.Trace = Propagator.Inject(ctx)
	}
	r.Progress, r.Polling = answer.Progress(ctx) != nil, answer.Polling(ctx)
	r.Stdin, r.Stdout, r.Stderr, r.Conn = io.Stdin != nil, io.Stdout != nil, io.Stderr != nil, io.Conn != nil
	return r
}

// context returns ctx with the values that the request carries. It is the inverse of complete.
func (r Request) context(ctx context.Context) context.Context {
	if Propagator != nil {
		ctx = Propagator.Extract(ctx, r.Trace)
	}
	return answer.WithPolling(answer.WithClient(answer.WithCaller(ctx, r.By), r.Client), r.Polling)
}

// Introducer is a process with a description for the client.
type Introducer interface {
	// Introduction returns JSON.
	Introduction() ([]byte, error)
}

// IntroductionOf decodes a process's introduction into v.
func IntroductionOf(p sandbox.Process, v any) error {
	of, ok := sandbox.As[Introducer](p)
	if !ok {
		return answer.Errorf(answer.Internal, "the started process has no ID")
	}
	raw, err := of.Introduction()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, v)
}

// Session performs operations for a holder. Its methods may be called from many goroutines at once.
type Session interface {
	// Do performs one operation; the end of ctx ends it.
	Do(ctx context.Context, req Request, io Streams) (*Answer, error)
	// Start starts a program, or attaches to one. The client gets the introduction of an
	// [Introducer] with the start.
	Start(ctx context.Context, req Request, io Streams) (sandbox.Process, error)
	// Busy reports whether the holder's end would interrupt or lose something.
	Busy() bool
	// Empty removes the sandbox; the next program has another one.
	Empty(ctx context.Context) error
}
