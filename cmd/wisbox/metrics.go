package main

import (
	"context"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
)

const metricsHelp = "serve metrics for Prometheus on this address of the loopback interface, as 127.0.0.1:9464"

// metered is a manager whose metrics are served on addr, if there is one, until
// ctx ends.
func metered(ctx context.Context, opts *wisbox.Options, addr string) (*wisbox.Manager, error) {
	if addr == "" {
		return wisbox.NewManager(ctx, opts)
	}
	l, err := metrics.Listen(addr)
	if err != nil {
		return nil, refused("--metrics", err)
	}
	counted := metrics.New()
	opts.Meter = counted
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	counted.Watch(m.Stats)
	go func() { _ = counted.Serve(ctx, l) }() // the process ends with ctx
	return m, nil
}
