package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/overlay"
)

func (a *app) newPruneCmd() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove abandoned sessions, and containers without a session",
		Long: `Removes ephemeral sessions whose process is gone, kept sessions whose time is over,
remains of interrupted removals, incomplete templates, and containers whose session is gone.
Ends processes that hold a session and that no client can reach any more. Other kept sessions stay.`,
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
			fmt.Fprintf(w, "%s  %s %s\n", streams.Printable(s.ID), s.Reason, s.Problem)
		}
		if len(swept) == 0 {
			fmt.Fprintln(w, "nothing to remove")
		}
	})
}
