package envd

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/tool"
)

const (
	maxMessage       = 4 << 20  // bytes of a request that carries input or a program
	maxSmall         = 64 << 10 // bytes of any other
	headSize         = 5
	flagCompressed   = 1
	flagEnd          = 2
	defaultKeepalive = 90 * time.Second
)

// wireError is an error of the Connect protocol.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *wireError) Error() string { return e.Code + ": " + e.Message }

// statuses are the HTTP statuses of the codes.
var statuses = map[string]int{
	"invalid_argument": 400, "failed_precondition": 400, "unauthenticated": 401, "permission_denied": 403, "not_found": 404,
	"already_exists": 409, "resource_exhausted": 429, "canceled": 499, "internal": 500, "unimplemented": 501, "unavailable": 503, "deadline_exceeded": 504,
}

var codes = map[tool.Kind]string{
	tool.Invalid: "invalid_argument", tool.NotFound: "not_found", tool.Exists: "already_exists", tool.IsDir: "invalid_argument",
	tool.NotDir: "invalid_argument", tool.NotRegular: "invalid_argument", tool.Permission: "permission_denied", tool.Conflict: "failed_precondition",
	tool.TooLarge: "resource_exhausted", tool.Limit: "resource_exhausted", tool.NoSpace: "resource_exhausted", tool.Unsupported: "unimplemented",
	tool.Busy: "unavailable", tool.Unavailable: "unavailable", tool.Closed: "unavailable", tool.Timeout: "deadline_exceeded",
}

// errorOf returns an error as a client sees it.
func (h *handler) errorOf(ctx context.Context, err error) *wireError {
	if known := (*wireError)(nil); errors.As(err, &known) {
		return known
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &wireError{"deadline_exceeded", "the time of Connect-Timeout-Ms is over"}
	}
	said := tool.AsError(err)
	code, known := codes[said.Kind]
	if !known {
		code = "internal"
		h.failed("a request of a sandbox's client failed", said)
	}
	return &wireError{code, said.Message}
}

// unary serves a method with one message each way. The request has at most most bytes.
func unary[Q, A any](h *handler, most int64, do func(context.Context, *Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isType(w, r, "application/json") {
			return
		}
		ctx, cancel, err := deadlineOf(r)
		defer cancel()
		var answer A
		if err == nil {
			err = checkUser(userOf(r))
		}
		if err == nil {
			var q Q
			var free func()
			if free, err = readUnary(r, most, &q); err == nil {
				answer, err = do(ctx, &q)
			}
			free()
		}
		if err != nil {
			said := h.errorOf(ctx, err)
			writeJSON(w, r, statuses[said.Code], said)
			return
		}
		writeJSON(w, r, http.StatusOK, answer)
	}
}

func isType(w http.ResponseWriter, r *http.Request, want string) bool {
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got == want {
		return true
	}
	w.Header().Set("Accept-Post", want)
	w.WriteHeader(http.StatusUnsupportedMediaType)
	return false
}

// userOf returns the user that a request names for its programs.
func userOf(r *http.Request) string {
	name, _, _ := r.BasicAuth()
	return name
}

// deadlineOf returns the context of a request with its own time limit.
func deadlineOf(r *http.Request) (context.Context, context.CancelFunc, error) {
	limit, err := timeoutOf(r)
	if limit == 0 {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	return ctx, cancel, nil
}

// timeoutOf returns the request's own time limit; 0 means none.
func timeoutOf(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 63)
	if err != nil || len(text) > 10 {
		return 0, &wireError{"invalid_argument", "Connect-Timeout-Ms must be a number of milliseconds, of at most ten digits"}
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// readUnary reads a request's message of at most most bytes. free gives back its room.
func readUnary(r *http.Request, most int64, ask any) (free func(), err error) {
	raw, free, err := httpguard.ReadBody(r, most)
	if err != nil {
		return free, bodyError(err, &wireError{"canceled", "the request ended early"})
	}
	return free, decode(raw, ask)
}

// bodyError returns the error of a message that can't be read.
func bodyError(err error, broken *wireError) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge(large.Limit)
	}
	if errors.Is(err, httpguard.ErrBusy) {
		return err
	}
	return broken
}

func tooLarge(most int64) error {
	return &wireError{"resource_exhausted", fmt.Sprintf("the message has more than %d bytes; send less at once", most)}
}

func decode(raw []byte, ask any) error {
	if len(raw) == 0 { // as an empty message
		return nil
	}
	if err := json.Unmarshal(raw, ask); err != nil {
		return &wireError{"invalid_argument", "the message is not the JSON of this method's request"}
	}
	return nil
}

// readEnvelope reads the one message of a stream's request.
func readEnvelope(r *http.Request, most int64, ask any) error {
	var head [headSize]byte
	if _, err := io.ReadFull(r.Body, head[:]); err != nil {
		return &wireError{"invalid_argument", "the request must be one envelope: a byte of flags, four of length, JSON"}
	}
	size := int64(binary.BigEndian.Uint32(head[1:]))
	switch {
	case head[0]&flagCompressed != 0:
		return &wireError{"unimplemented", "messages can't be compressed"}
	case head[0] != 0:
		return &wireError{"invalid_argument", "the request's first envelope has unknown flags"}
	case size > most:
		return tooLarge(most)
	}
	short := &wireError{"invalid_argument", "the request is shorter than the length in its envelope"}
	raw, free, err := httpguard.ReadAll(r, io.LimitReader(r.Body, size), size)
	defer free()
	if err != nil {
		return bodyError(err, short)
	}
	if int64(len(raw)) != size {
		return short
	}
	if n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, headSize+1)); n > headSize { // an empty end may follow
		return &wireError{"invalid_argument", "the request must be one envelope"}
	}
	return decode(raw, ask)
}

// out is the answer of a stream. Many goroutines may send at the same time.
type out struct {
	ctx   context.Context
	w     http.ResponseWriter
	flush *http.ResponseController
	quiet *time.Timer // sends a keepalive
	every time.Duration

	mu     sync.Mutex
	err    error // nothing more can be sent
	cancel context.CancelFunc
}

var errEnded = errors.New("the stream has ended")

// stream serves a method that answers with many messages. Its errors are in the last
// envelope: the status is always 200.
func stream[Q any](h *handler, most int64, keepalive any, do func(context.Context, *http.Request, *Q, *out) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isType(w, r, "application/connect+json") {
			return
		}
		w.Header().Set("Content-Type", "application/connect+json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		w.WriteHeader(http.StatusOK)
		ctx, cancel, err := deadlineOf(r)
		defer cancel()
		var q Q
		if err == nil {
			err = readEnvelope(r, most, &q)
		}
		if err == nil {
			err = checkUser(userOf(r))
		}
		o := newOut(ctx, cancel, w, r, keepalive)
		defer o.close()
		if err == nil {
			err = do(ctx, r, &q, o)
		}
		if last := h.endOf(ctx, err); last != nil {
			_ = o.put(flagEnd, last)
		}
	}
}

type ending struct {
	Error *wireError `json:"error,omitempty"`
}

// endOf returns the last message, or nil if nobody can receive it or the stream is cut.
func (h *handler) endOf(ctx context.Context, err error) *ending {
	switch {
	case errors.Is(err, errCut):
		panic(http.ErrAbortHandler)
	case err == nil:
		return &ending{}
	case errors.Is(ctx.Err(), context.Canceled):
		return nil
	}
	return &ending{h.errorOf(ctx, err)}
}

func newOut(ctx context.Context, cancel context.CancelFunc, w http.ResponseWriter, r *http.Request, keepalive any) *out {
	o := &out{ctx: ctx, w: w, flush: http.NewResponseController(w), every: intervalOf(r), cancel: cancel}
	o.quiet = time.AfterFunc(o.every, func() { _ = o.send(keepalive) })
	return o
}

// intervalOf returns how long a stream may be silent.
func intervalOf(r *http.Request) time.Duration {
	n, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || n <= 0 || n > 24*60*60 {
		return defaultKeepalive
	}
	return time.Duration(n) * time.Second
}

// send sends a message at once.
func (o *out) send(message any) error { return o.put(0, message) }

func (o *out) put(flags byte, message any) error {
	raw, err := json.Marshal(message)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = o.ctx.Err()
	}
	if o.err != nil && flags&flagEnd == 0 || errors.Is(o.err, errEnded) {
		return o.err
	}
	frame := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(raw)))
	_, err = o.w.Write(append(frame, raw...))
	if err == nil {
		err = o.flush.Flush()
	}
	if err != nil {
		o.err = err
		o.cancel()
	}
	o.quiet.Reset(o.every)
	return err
}

// close stops sending, since the writer then belongs to another request.
func (o *out) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errEnded
	o.quiet.Stop()
}

// unblock ends reads and writes that wait for a client, and later ones.
func unblock(c *http.ResponseController) {
	past := time.Unix(1, 0)
	_ = c.SetWriteDeadline(past)
	_ = c.SetReadDeadline(past)
}
