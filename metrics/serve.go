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
)

const (
	headerTimeout = 5 * time.Second
	answerTimeout = 10 * time.Second
)

// Write writes what from gives as the text that Prometheus reads.
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

// Handler answers with the text that Prometheus reads, below any path. A request
// that a browser was made to send by another site is refused.
func Handler(from prometheus.Gatherer) http.Handler {
	text := promhttp.HandlerFor(from, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackName(r.Host) {
			http.Error(w, "the host is not this machine's loopback interface", http.StatusForbidden)
			return
		}
		text.ServeHTTP(w, r)
	})
}

// loopbackName keeps out names that a web page can point at this machine.
func loopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// Listen opens an address of the loopback interface, as 127.0.0.1:9464: who can
// read it sees the names of tools and how much they are used.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("%s is not an address of the loopback interface; write 127.0.0.1:PORT", addr), l.Close())
	}
	return l, nil
}

// Serve answers on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, from prometheus.Gatherer) error {
	server := &http.Server{Handler: Handler(from), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: answerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
