package main

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/engine"
)

// newReportCmd returns the command that says how a command of the front has ended, and exits as that command would.
func (a *app) newReportCmd() *cobra.Command {
	return &cobra.Command{
		Use:    "__report JSON",
		Short:  "Say how a command ended",
		Hidden: true,
		Args:   exactArgs("JSON"),
		RunE:   func(cmd *cobra.Command, args []string) error { return a.runReport(cmd.Context(), args[0]) },
	}
}

func (a *app) runReport(ctx context.Context, raw string) error {
	var r engine.Report
	if err := json.Unmarshal([]byte(raw), &r); err != nil {
		return err
	}
	switch {
	case r.Command == "call":
		a.json = true
		return r.Error
	case r.Error != nil:
		return a.engineError(ctx, r.Error)
	}
	a.explain(ctx, programFlags{}, *r.Result)
	return a.engineError(ctx, exitOf(ctx, *r.Result))
}
