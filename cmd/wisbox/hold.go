package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
	"github.com/wisbox/wisbox/metrics"
	"github.com/wisbox/wisbox/tool"
)

// newHoldCmd returns the command that holds a kept session. Clients start it themselves.
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
	a.addPodFlag(cmd)
	cmd.Flags().Var(timeFlag{&idle}, "hold-idle", "end after this long without clients and processes")
	return cmd
}

// runHold prints one line on stdout for the client that started it: that it is ready, or the error
// as JSON. `wisbox lab metrics` asks it for its counters. It logs warnings to a file of the session,
// and everything if the command that started it had --debug.
func (a *app) runHold(ctx context.Context, name string, idle time.Duration) error {
	boundMemory()
	a.json, a.err = true, a.out
	level := slog.LevelWarn
	if a.debug {
		level = slog.LevelDebug
	}
	log, err := wisbox.HoldLog(a.cache, name)
	if err != nil {
		return err
	}
	opts := a.options(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: level})))
	opts.Meter = metrics.New()
	m, err := wisbox.NewManager(ctx, opts)
	if err != nil {
		return err
	}
	defer m.Close()
	err = m.Hold(ctx, name, idle, wisbox.HoldReady(os.Stdout))
	if tool.KindOf(err) == tool.Busy { // another holder was quicker, and does as well
		wisbox.HoldReady(os.Stdout)()
		return nil
	}
	return err
}

// holdCommand returns the command line that starts a holder.
func (a *app) holdCommand() []string {
	self, err := engine.Program()
	if err != nil {
		return nil // then this process does the work
	}
	argv := []string{self, "__hold"}
	if a.cache != "" {
		argv = append(argv, "--cache", absolute(a.cache))
	}
	if a.debug {
		argv = append(argv, "--debug")
	}
	if a.pod {
		argv = append(argv, "--pod")
	}
	if a.url != "" {
		argv = append(argv, "--podman", a.url)
	}
	return argv
}
