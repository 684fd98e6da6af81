package httpguard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxPiece      = 64 << 10  // bytes that a client must take within [Options.Stalled]
	maxOfStranger = 256 << 10 // bytes that are read of a request that isn't admitted
	drainTime     = 5 * time.Second
	fieldCost     = 128 // bytes of memory of a header's field or of a JSON value, beside its text
)

// exchange is a request and its answer. A stranger's has one deadline for all of it. Once it is admitted, the deadline
// slides: each wait for the client has its own.
type exchange struct {
	g    *Guard
	c    *http.ResponseController // of the server's own writer
	conn *conn                    // nil in tests without a connection
	h2   bool

	share *Share // nil for a stranger; this and the next are guarded by the budget's mu
	part  string
	bytes int64

	mu                sync.Mutex
	until             time.Time // of a stranger
	writeBy           time.Time // of a handler's own deadline
	bodyDone          bool
	readCut, writeCut bool // a handler has ended reads or writes for good
	hijacked          bool
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// withExchange follows each request, until its handler returns.
func (g *Guard) withExchange(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := &exchange{
			g: g, c: http.NewResponseController(w), h2: r.ProtoMajor == 2, until: time.Now().Add(g.opts.ReadTimeout),
			bodyDone: r.Body == nil || r.Body == http.NoBody,
		}
		e.conn, _ = r.Context().Value(connKey{}).(*conn)
		if !e.begin() {
			Refuse(w, http.StatusServiceUnavailable, "too many requests at once")
			return
		}
		defer e.end()
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e))
		if !e.bodyDone {
			r.Body = &body{r.Body, e, 0}
		}
		next.ServeHTTP(&writer{w, e}, r)
	})
}

// begin counts the request as a stranger's.
func (e *exchange) begin() bool {
	b := e.g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.strangers >= b.max[ofRequests] {
		return false
	}
	b.strangers++
	if e.conn != nil {
		e.conn.running[e] = true
	}
	_ = e.c.SetReadDeadline(e.until)
	_ = e.c.SetWriteDeadline(e.until)
	return true
}

// end gives back what the request has taken. The server itself may still have to read the rest of its body, and to
// write the rest of the answer.
func (e *exchange) end() {
	b := e.g.budget
	b.mu.Lock()
	e.leave()
	if e.conn != nil {
		delete(e.conn.running, e)
	}
	b.strangers--
	b.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hijacked {
		return
	}
	if !e.readCut && !e.bodyDone {
		_ = e.c.SetReadDeadline(time.Now().Add(min(drainTime, e.g.opts.Stalled)))
	}
	if !e.writeCut {
		_ = e.c.SetWriteDeadline(time.Now().Add(e.g.opts.Stalled))
	}
}

// leave makes the request a stranger's again. The caller must hold the budget's mu.
func (e *exchange) leave() {
	s := e.share
	if s == nil {
		return
	}
	s.free(ofRequests, 1)
	s.free(ofBytes, e.bytes)
	if s.parts[e.part]--; s.parts[e.part] == 0 {
		delete(s.parts, e.part)
	}
	e.g.budget.strangers++
	e.share, e.part, e.bytes = nil, "", 0
}

// LetIn records that a request was admitted, and for whom it counts from now on, with its connection. If the client
// has too much already, LetIn returns an error whose chain has [ErrBusy], and the request stays a stranger's. It waits
// if the client sends too many requests a second. It does nothing for a request that came through no guard.
func LetIn(r *http.Request, client Client) error {
	e := exchangeOf(r.Context())
	if e == nil {
		return nil
	}
	s := e.g.budget.share(client.Name)
	if err := e.join(s, client.Part, costOf(r.Header)); err != nil {
		return err
	}
	e.mu.Lock()
	e.until = time.Time{}
	if !e.hijacked {
		e.rest()
	}
	e.mu.Unlock()
	return s.Wait(r.Context())
}

// MaxAnswerHeader bounds the header of a program's answer, in bytes; give it to transports to programs. Their default of
// 10 MiB can take ten times as much memory, for each request at once.
const MaxAnswerHeader = 32 << 10

// TakeHeader takes the memory of an answer's header, until the request ends that the answer is for.
func TakeHeader(answer *http.Response) error {
	return Take(answer.Request.Context(), costOf(answer.Header))
}

// costOf returns the memory of a header.
func costOf(h http.Header) (n int64) {
	for name, values := range h {
		n += int64(len(name)) + fieldCost
		for _, v := range values {
			n += int64(len(v)) + fieldCost/4
		}
	}
	return n
}

func (e *exchange) join(s *Share, part string, cost int64) error {
	b := e.g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.share == s && e.part == part {
		return nil
	}
	e.leave()
	if e.conn != nil {
		if err := e.conn.moveTo(s); err != nil {
			return err
		}
	}
	if part != "" && s.parts[part] >= b.maxOfPart && !b.giveWay(s, part) {
		return busy("requests for this sandbox")
	}
	if !s.take(ofRequests, 1) {
		return busy("requests")
	}
	if !s.take(ofBytes, cost) {
		s.free(ofRequests, 1)
		return errBytes
	}
	s.parts[part]++
	b.strangers--
	e.share, e.part, e.bytes = s, part, cost
	return nil
}

// awaits sets the deadlines of a read or write that may wait for the client. A write may also read: the server reads
// the rest of a body before it answers.
func (e *exchange) awaits() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.hijacked {
		return
	}
	at := e.until
	if at.IsZero() {
		at = time.Now().Add(e.g.opts.Stalled)
	}
	if !e.readCut && !e.bodyDone {
		_ = e.c.SetReadDeadline(at)
	}
	if !e.writeBy.IsZero() && e.writeBy.Before(at) {
		at = e.writeBy
	}
	if !e.writeCut {
		_ = e.c.SetWriteDeadline(at)
	}
}

// rests removes the deadlines after a read or write.
func (e *exchange) rests() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hijacked && e.until.IsZero() {
		e.rest()
	}
}

// rest removes deadlines that would end a request while its handler works. HTTP/2 ends a stream at its deadline even if
// nothing waits; HTTP/1 reads ahead once it has the body, and ends the request if that fails. The caller must hold mu.
func (e *exchange) rest() {
	if !e.readCut && (e.h2 || e.bodyDone) {
		_ = e.c.SetReadDeadline(time.Time{})
	}
	if !e.writeCut && e.h2 {
		_ = e.c.SetWriteDeadline(e.writeBy)
	}
}

// body is the body of a request.
type body struct {
	io.ReadCloser
	e    *exchange
	read int64
}

var errStranger = errors.New("the request is not admitted")

func (b *body) Read(p []byte) (int, error) {
	b.e.mu.Lock()
	stranger := !b.e.until.IsZero()
	b.e.mu.Unlock()
	if stranger && b.read >= maxOfStranger {
		return 0, errStranger
	}
	b.e.awaits()
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if errors.Is(err, io.EOF) {
		b.e.mu.Lock()
		b.e.bodyDone = true
		b.e.mu.Unlock()
	}
	b.e.rests()
	return n, err
}

// writer is the answer to a request. A handler's own deadline shortens the sliding one. One that has passed ends all
// reads or writes for good, also those that begin later.
type writer struct {
	http.ResponseWriter
	e *exchange
}

// Write implements [http.ResponseWriter]. If the client's share has no room for what it writes, it ends the answer, so
// that nobody takes it for complete.
func (w *writer) Write(p []byte) (n int, err error) {
	if len(p) > maxPiece {
		if err := w.e.takeMore(int64(len(p))); err != nil {
			_ = w.SetWriteDeadline(time.Unix(1, 0))
			return 0, err
		}
		defer w.e.giveBack(int64(len(p)))
	}
	defer w.e.rests()
	for piece := range slices.Chunk(p, maxPiece) {
		w.e.awaits()
		m, err := w.ResponseWriter.Write(piece)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// WriteHeader implements [http.ResponseWriter].
func (w *writer) WriteHeader(status int) {
	w.e.awaits()
	defer w.e.rests()
	w.ResponseWriter.WriteHeader(status)
}

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	w.e.awaits()
	defer w.e.rests()
	return w.e.c.Flush()
}

// Flush implements [http.Flusher].
func (w *writer) Flush() { _ = w.FlushError() }

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// SetReadDeadline is for [http.ResponseController].
func (w *writer) SetReadDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if t.IsZero() || time.Now().Before(t) || w.e.readCut {
		return nil // the guard's own deadlines bound each read
	}
	w.e.readCut = true
	return w.e.c.SetReadDeadline(t)
}

// SetWriteDeadline is for [http.ResponseController].
func (w *writer) SetWriteDeadline(t time.Time) error {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	if w.e.writeCut {
		return nil
	}
	w.e.writeBy, w.e.writeCut = t, !t.IsZero() && !time.Now().Before(t)
	return w.e.c.SetWriteDeadline(t)
}

// Hijack implements [http.Hijacker]. The handler then sets the connection's deadlines.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := w.e.c.Hijack()
	if err == nil {
		w.e.mu.Lock()
		w.e.hijacked = true
		w.e.mu.Unlock()
	}
	return conn, buf, err
}

// ReadBody reads the body of a request, at most most bytes. They count for its client until free is called, or until
// the request ends. The error is an [*http.MaxBytesError] for a larger body.
func ReadBody(r *http.Request, most int64) (raw []byte, free func(), err error) {
	return ReadAll(r, r.Body, most)
}

// ReadAll is [ReadBody] for a part of the body.
func ReadAll(r *http.Request, from io.Reader, most int64) (raw []byte, free func(), err error) {
	e, taken := exchangeOf(r.Context()), int64(0)
	free = func() { e.giveBack(taken); taken = 0 }
	for raw = make([]byte, 0, 512); ; {
		n, err := from.Read(raw[len(raw):min(cap(raw), int(most)+1)])
		raw = raw[:len(raw)+n]
		switch {
		case int64(len(raw)) > most:
			return nil, free, &http.MaxBytesError{Limit: most}
		case errors.Is(err, io.EOF):
			cost := weight(raw)
			if err := e.takeMore(cost); err != nil {
				return nil, free, err
			}
			taken += cost
			return raw, free, nil
		case err != nil:
			return nil, free, err
		case len(raw) == cap(raw):
			cost := int64(cap(raw)) // it doubles
			if err := e.takeMore(cost); err != nil {
				return nil, free, err
			}
			taken += cost
			raw = append(make([]byte, 0, 2*cap(raw)), raw...)
		}
	}
}

// weight returns the memory that the values of a JSON text may take beside their text.
func weight(raw []byte) (n int64) {
	if text := bytes.TrimSpace(raw); len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return 0
	}
	inText := false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case !inText && (c == ',' || c == ':' || c == '[' || c == '{'):
			n += fieldCost
		}
	}
	return n
}

// Take takes n bytes for a request of whose context ctx is one, until the request ends.
func Take(ctx context.Context, n int64) error { return exchangeOf(ctx).takeMore(n) }

// Marshal returns the JSON of an answer. It counts for the request's client until free is called, or until the request
// ends. Only few answers are made at once: one may be much larger than what it is made from.
func Marshal(ctx context.Context, v any) (raw []byte, free func(), err error) {
	free = func() {}
	e := exchangeOf(ctx)
	if e == nil {
		raw, err = json.Marshal(v)
		return raw, free, err
	}
	places := []chan struct{}{e.g.marshals}
	e.g.budget.mu.Lock()
	if e.share != nil {
		places = []chan struct{}{e.share.marshal, e.g.marshals}
	}
	e.g.budget.mu.Unlock()
	for _, place := range places {
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
		case <-ctx.Done():
			return nil, free, ctx.Err()
		}
	}
	if raw, err = json.Marshal(v); err != nil {
		return nil, free, err
	}
	if err = e.takeMore(int64(len(raw))); err != nil {
		return nil, free, err
	}
	return raw, sync.OnceFunc(func() { e.giveBack(int64(len(raw))) }), nil
}

// takeMore does nothing for a nil exchange, or for a stranger's, which takes little.
func (e *exchange) takeMore(n int64) error {
	if e == nil || n == 0 {
		return nil
	}
	e.g.budget.mu.Lock()
	defer e.g.budget.mu.Unlock()
	if e.share == nil {
		return nil
	}
	if !e.share.take(ofBytes, n) {
		return errBytes
	}
	e.bytes += n
	return nil
}

func (e *exchange) giveBack(n int64) {
	if e == nil || n == 0 {
		return
	}
	e.g.budget.mu.Lock()
	defer e.g.budget.mu.Unlock()
	if e.share != nil {
		e.share.free(ofBytes, n)
		e.bytes -= n
	}
}
