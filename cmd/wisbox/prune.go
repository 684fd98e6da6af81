package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/overlay"
)

func (a *app) newPruneCmd() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what has no live owner: dead sessions and containers",
		Long: `Removes ephemeral sessions whose process is gone, kept ones whose time is over,
removals that were interrupted, templates that were half made, and containers whose
session is gone. Kept sessions within their time stay.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runPrune(cmd.Context(), dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "list what would be removed, and remove nothing")
	return cmd
}

func (a *app) runPrune(ctx context.Context, dryRun bool) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	swept, err := m.Prune(ctx, dryRun)
	if err != nil {
		return err
	}
	if swept == nil {
		swept = []overlay.Swept{}
	}
	return a.print(map[string]any{"swept": swept, "dry_run": dryRun}, func(w io.Writer) {
		for _, s := range swept {
			fmt.Fprintf(w, "%s  %s %s\n", printable(s.ID), s.Reason, s.Problem)
		}
		if len(swept) == 0 {
			fmt.Fprintln(w, "nothing to remove")
		}
	})
}
