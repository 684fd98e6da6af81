package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/wisbox/wisbox/httpguard"
)

const (
	readTimeout   = 5 * time.Second
	answerTimeout = 10 * time.Second
	maxConns      = 64
)

// Write writes the gathered metrics in Prometheus's text format.
func Write(w io.Writer, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(w, family); err != nil {
			return err
		}
	}
	return nil
}

// Handler serves the metrics in Prometheus's text format at any path. It refuses requests that
// another site made a browser send.
func Handler(from prometheus.Gatherer) http.Handler { return handler(newGuard(), from) }

func newGuard() *httpguard.Guard {
	guard, _ := httpguard.New(&httpguard.Options{Public: true, ReadTimeout: readTimeout, MaxConns: maxConns, MaxStrangers: maxConns}) // only tokens can be invalid
	return guard
}

func handler(guard *httpguard.Guard, from prometheus.Gatherer) http.Handler {
	text := promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout))
		text.ServeHTTP(w, r)
	}))
}

// Listen listens on an address of the loopback interface, e.g. 127.0.0.1:9464. Everybody who can
// read the metrics sees the names of tools and how much they are used.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("%s is not an address of the loopback interface; use 127.0.0.1:PORT", addr), l.Close())
	}
	return l, nil
}

// Serve serves the metrics on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, from prometheus.Gatherer) error {
	guard := newGuard()
	return guard.Serve(ctx, l, handler(guard, from), nil)
}
