package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/exposition"
)

const (
	readTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second
	maxConns      = 64
	maxScrapes    = 4
)

// Write writes the gathered metrics in Prometheus's text format.
func Write(w io.Writer, from Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}
	return exposition.Write(w, families)
}

// Handler serves the metrics in Prometheus's text format at any path. It refuses requests that
// another site made a browser send.
func Handler(from Gatherer) http.Handler { return handler(newGuard(), from) }

func newGuard() *httpguard.Guard {
	guard, _ := httpguard.New(&httpguard.Options{Public: true, ReadTimeout: readTimeout, MaxConns: maxConns, MaxStrangers: maxConns}) // only tokens can be invalid
	return guard
}

func handler(guard *httpguard.Guard, from Gatherer) http.Handler {
	room := make(chan struct{}, maxScrapes)
	return guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
		default:
			http.Error(w, "too many scrapes at once; try again later", http.StatusServiceUnavailable)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		var text bytes.Buffer
		if err := Write(&text, from); err != nil {
			http.Error(w, "the metrics can't be gathered; see the server's log", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // the scraper may have gone
	}))
}

// Listen listens on an address of the loopback interface, e.g. 127.0.0.1:9464. Everybody who can
// read the metrics sees the names of tools and how much they are used.
func Listen(addr string) (net.Listener, error) {
	l, err := httpguard.Listen(addr, &httpguard.Options{Public: true})
	if errors.Is(err, httpguard.ErrNoToken) {
		return nil, fmt.Errorf("%s is not an address of the loopback interface; use 127.0.0.1:PORT", addr)
	}
	return l, err
}

// Serve serves the metrics on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, from Gatherer) error {
	guard := newGuard()
	return guard.Serve(ctx, l, handler(guard, from), nil)
}
