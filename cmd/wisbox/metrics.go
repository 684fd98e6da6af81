package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
)

const metricsHelp = "serve metrics for Prometheus on this `ADDRESS` of the loopback interface, e.g. 127.0.0.1:9464"

// metricsAddress describes the form of the address.
const metricsAddress = "HOST:PORT on the loopback interface, such as 127.0.0.1:9464"

func (a *app) newMetricsCmd() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Print or serve metrics of the kept sessions, for Prometheus",
		Long: `Collects the counters of the processes that hold kept sessions: calls by tool and
outcome, their durations, the ends of programs, bytes. Each number has the label
session. Such a process counts from its start and ends ten minutes after the last use
of its session; reading the metrics isn't a use.

wisbox mcp serves the metrics of its own sessions itself: wisbox mcp --metrics.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runMetrics(cmd.Context(), addr) },
	}
	cmd.Flags().StringVar(&addr, "listen", "", metricsHelp+", instead of printing them once")
	return cmd
}

func (a *app) runMetrics(ctx context.Context, addr string) error {
	if a.json {
		return usageError{fmt.Errorf("--json: metrics are text in the form that Prometheus reads")}
	}
	var l net.Listener
	if addr != "" {
		var err error
		if l, err = metrics.Listen(addr); err != nil {
			return cannotListen("--listen", addr, metricsAddress, err)
		}
		defer l.Close()
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	holders := metrics.NewHolders(m)
	if l == nil {
		return metrics.Write(a.out, holders)
	}
	fmt.Fprintf(a.err, "metrics on http://%s/metrics\n", l.Addr())
	return errors.Join(metrics.Serve(ctx, l, holders), ctx.Err())
}

// metered returns a manager. If addr isn't empty, it serves the manager's metrics there until ctx
// ends.
func metered(ctx context.Context, opts *wisbox.Options, addr string) (*wisbox.Manager, error) {
	if addr == "" {
		return wisbox.NewManager(ctx, opts)
	}
	l, err := metrics.Listen(addr)
	if err != nil {
		return nil, cannotListen("--metrics", addr, metricsAddress, err)
	}
	counted := metrics.New()
	opts.Meter = counted
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	counted.Watch(m.Stats)
	go func() { _ = metrics.Serve(ctx, l, counted) }() // the process ends with ctx
	return m, nil
}
