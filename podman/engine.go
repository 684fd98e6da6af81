package podman

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/errorhandling"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

const (
	// apiPrefix is the oldest version of the API that suffices.
	apiPrefix = "/v4.0.0/libpod"

	maxAnswer    = 32 << 20 // bytes of one JSON answer
	maxErrorText = 16 << 10 // bytes of an error that isn't JSON
	maxTries     = 3

	pingAfter = time.Second // a request may take this long before the service is pinged
)

var pingTimeout = patience.For(3 * time.Second)

// engine is a connection to one Podman service. The client dials again when the
// service was restarted on the same socket.
type engine struct {
	conn *bindings.Connection
	base string // scheme and host of request URLs, with a path prefix for tcp
	from string // for messages: "PODMAN_BASE_URL"
	own  bool   // it is wisbox's private service
	// alone reports whether the service is for one build, and ends with it.
	alone bool
	info  hostInfo
	log   serviceLog
}

func newEngine(conn *bindings.Connection, from string) *engine {
	e := &engine{conn: conn, base: "http://d", from: from}
	if conn.URI.Scheme == "tcp" {
		e.base = "http://" + conn.URI.Host + conn.URI.Path
		if e.tlsConfig() != nil {
			e.base = "https://" + conn.URI.Host + conn.URI.Path
		}
	}
	return e
}

func (e *engine) transport() *http.Transport {
	t, _ := e.conn.Client.Transport.(*http.Transport)
	return t
}

func (e *engine) tlsConfig() *tls.Config {
	if t := e.transport(); t != nil {
		return t.TLSClientConfig
	}
	return nil
}

// dial opens a separate connection to the service.
func (e *engine) dial(ctx context.Context) (net.Conn, error) {
	raw, err := e.transport().DialContext(ctx, e.conn.URI.Scheme, e.conn.URI.Host)
	if err != nil || e.tlsConfig() == nil {
		return raw, err
	}
	config := e.tlsConfig().Clone()
	config.ServerName = e.conn.URI.Hostname()
	return tls.Client(raw, config), nil
}

// request is one call of the API.
type request struct {
	method string
	path   string // below apiPrefix, escaped
	query  url.Values
	body   any           // sent as JSON when not nil
	stream io.Reader     // or this, which can't be repeated
	out    any           // gets the JSON answer when not nil
	sink   io.Writer     // or the raw answer goes here
	limit  time.Duration // for the whole request; 0 is 30 s
	doing  string        // for messages: "create the container"

	// explain returns an error for an answer, or nil; transfer calls it.
	explain func(error) *Error
}

// do sends the request, at most three times if the error is temporary. It ends with ctx, at the request's
// time limit, or when the service stops answering.
func (e *engine) do(ctx context.Context, r request) error {
	if r.limit == 0 {
		r.limit = patience.For(30 * time.Second)
	}
	if r.sink == nil {
		defer waits(ctx, waitsAfter, "Podman, which has not answered yet")()
	}
	reqCtx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	reqCtx, stop := e.heartbeat(reqCtx)
	defer stop()
	var err error
	for try := 1; ; try++ {
		err = e.once(reqCtx, r)
		if err == nil || try == maxTries || r.stream != nil || !isTransient(err) || !pause(reqCtx, try) {
			break
		}
	}
	if err != nil && errors.Is(context.Cause(reqCtx), errHung) {
		err = fmt.Errorf("%w: %w", errHung, err)
	}
	return err
}

// How long a call waits before it says so: for a service that answers pings, which a busy machine makes slow; and for a ping, which is
// sent after [pingAfter].
const (
	waitsAfter = 10 * time.Second
	silentFor  = 2 * time.Second
)

// waits reports for what the call waits, if that takes long.
func waits(ctx context.Context, after time.Duration, what string) (done func()) {
	report := tool.Progress(ctx)
	if report == nil {
		return func() {}
	}
	timer := time.AfterFunc(after, func() { report(tool.Waits + what) })
	return func() { timer.Stop() }
}

// pause waits before the next try, longer each time, with jitter.
func pause(ctx context.Context, try int) bool {
	wait := time.Duration(try) * (50*time.Millisecond + rand.N(100*time.Millisecond))
	select {
	case <-ctx.Done():
		return false
	case <-time.After(wait):
		return true
	}
}

func (e *engine) once(ctx context.Context, r request) error {
	body, err := r.reader()
	if err != nil {
		return err
	}
	target := e.base + apiPrefix + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else if r.stream != nil {
		req.Header.Set("Content-Type", "application/x-tar")
	}
	resp, err := e.conn.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return decode(resp, r)
}

func (r request) reader() (io.Reader, error) {
	if r.body == nil {
		return r.stream, nil
	}
	data, err := json.Marshal(r.body)
	return bytes.NewReader(data), err
}

func decode(resp *http.Response, r request) error {
	if resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotModified {
		return readError(resp)
	}
	if r.sink != nil {
		_, err := io.Copy(r.sink, resp.Body)
		return err
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil || r.out == nil {
		return err
	}
	if err := json.Unmarshal(data, r.out); err != nil {
		return fmt.Errorf("unreadable answer of %d bytes: %w", len(data), err)
	}
	return nil
}

func readError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	if err != nil {
		return err
	}
	var model errorhandling.ErrorModel
	text := strings.TrimSpace(string(data))
	if json.Unmarshal(data, &model) == nil && model.Message != "" {
		text = model.Message
	}
	return &apiError{Status: resp.StatusCode, Message: strings.ToValidUTF8(text, "?")}
}

// ping checks that the service answers.
func (e *engine) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	defer waits(ctx, silentFor, "Podman, whose service does not answer")()
	return e.once(ctx, request{method: http.MethodGet, path: "/_ping"})
}

// heartbeat ends the context when the service stops answering pings. So a slow request may take its time,
// but a hung service is noticed within some 4 s.
func (e *engine) heartbeat(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pingAfter):
			}
			if err := e.ping(ctx); err != nil && ctx.Err() == nil {
				cancel(errHung)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil); <-done }
}

func (e *engine) close() {
	e.conn.Client.CloseIdleConnections()
}
