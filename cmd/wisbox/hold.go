package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/tool"
)

// newHoldCmd is the process behind a kept session: clients start it themselves.
func (a *app) newHoldCmd() *cobra.Command {
	var idle time.Duration
	cmd := &cobra.Command{
		Use:    "__hold SESSION",
		Short:  "Hold a kept session for its clients",
		Hidden: true,
		Args:   exactArgs("SESSION"),
		RunE:   func(cmd *cobra.Command, args []string) error { return a.runHold(cmd.Context(), args[0], idle) },
	}
	idle = wisbox.HoldIdle
	cmd.Flags().Var(timeFlag{&idle}, "hold-idle", "end after this long without clients and processes")
	return cmd
}

// runHold prints one line on stdout, for the client that started it: that it is
// ready, or as JSON why not. What it counts `wisbox metrics` asks for.
func (a *app) runHold(ctx context.Context, name string, idle time.Duration) error {
	boundMemory()
	a.json, a.err = true, a.out
	opts := a.options(slog.New(slog.DiscardHandler))
	opts.Meter = metrics.New()
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		return err
	}
	defer m.Close()
	err = m.Hold(ctx, name, idle, wisbox.HoldReady(os.Stdout))
	if tool.KindOf(err) == tool.Busy { // another one was quicker: that one is as good
		wisbox.HoldReady(os.Stdout)()
		return nil
	}
	return err
}

// holdCommand is how this program starts a holder.
func (a *app) holdCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil // the work is then done in this process
	}
	argv := []string{self, "__hold"}
	if a.cache != "" {
		argv = append(argv, "--cache", absolute(a.cache))
	}
	if a.url != "" {
		argv = append(argv, "--podman", a.url)
	}
	return argv
}
