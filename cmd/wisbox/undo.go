package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
)

func (a *app) newUndoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "undo SESSION [STEP]",
		Short: "Make the workspace what it was before a call",
		Long: `Makes the workspace what it was before the last call that changed it, or before
the call STEP (its id, as wisbox log shows it), and so undoes all calls after it
too. Steps are made where the session has --auto-snapshot. The state before the
undo is kept as a snapshot, whose id is printed.`,
		Example: `  wisbox undo box
  wisbox undo box 01j9z3k6t2v5c8x1y4b7n0m3qa`,
		Args: exactArgs("SESSION", "[STEP]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runUndo(cmd.Context(), args) },
	}
}

func (a *app) runUndo(ctx context.Context, args []string) error {
	call := ""
	if len(args) == 2 {
		call = args[1]
	}
	return a.withSession(ctx, args[0], func(s *wisbox.Session) error {
		done, err := s.Undo(ctx, call)
		if err != nil {
			return err
		}
		return a.print(done, func(w io.Writer) {
			fmt.Fprintf(w, "undone: call %s%s; %d entries brought back, %d changed, %d removed\nthe state before is snapshot %s\n",
				done.Call, andMore(done.Calls-1), done.Restored.Added, done.Restored.Changed, done.Restored.Removed, done.Before)
		})
	})
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" and %d after it", n)
}
