package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
)

func (a *app) newSnapshotCmd() *cobra.Command {
	var label string
	var quiesce bool
	create := &cobra.Command{
		Use: "create SESSION", Short: "Keep the workspace as it is", Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTool(cmd.Context(), args[0], "snapshot_create", given(map[string]any{"label": label, "quiesce": quiesce}))
		},
	}
	create.Flags().StringVar(&label, "label", "", "one line of `TEXT` that says what it is, of at most 200 characters")
	restore := &cobra.Command{
		Use: "restore SESSION SNAPSHOT", Short: "Bring the workspace back, in place", Args: exactArgs("SESSION", "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTool(cmd.Context(), args[0], "snapshot_restore", given(map[string]any{"snapshot_id": args[1], "quiesce": quiesce}))
		},
	}
	for _, c := range []*cobra.Command{create, restore} {
		c.Flags().BoolVar(&quiesce, "quiesce", false, "pause the session's programs meanwhile, where the host can")
	}
	diff := &cobra.Command{
		Use: "diff SESSION SNAPSHOT [SNAPSHOT]", Short: "Compare a snapshot with the workspace, or with another one",
		Args: exactArgs("SESSION", "SNAPSHOT", "[SNAPSHOT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			params := map[string]any{"from": args[1]}
			if len(args) == 3 {
				params["to"] = args[2]
			}
			return a.runTool(cmd.Context(), args[0], "snapshot_diff", params)
		},
	}
	return group("snapshot", "Keep a session's workspace as it is, compare it, bring it back", create, diff, restore,
		&cobra.Command{
			Use: "list SESSION", Aliases: []string{"ls"}, Short: "List the snapshots", Args: exactArgs("SESSION"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runTool(cmd.Context(), args[0], "snapshot_list", nil)
			},
		},
		&cobra.Command{
			Use: "rm SESSION SNAPSHOT…", Short: "Forget snapshots and give their room back",
			Args: atLeast("SESSION", "SNAPSHOT"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runSnapshotRm(cmd.Context(), args[0], args[1:])
			},
		})
}

// given leaves out what was not asked for.
func given(params map[string]any) map[string]any {
	maps.DeleteFunc(params, func(_ string, v any) bool { return v == "" || v == false })
	return params
}

func (a *app) runSnapshotRm(ctx context.Context, session string, ids []string) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		if err := s.RemoveSnapshots(ctx, ids...); err != nil {
			return asUsage(err)
		}
		return a.print(map[string]any{"removed": ids}, func(w io.Writer) {
			for _, id := range ids {
				fmt.Fprintln(w, id)
			}
		})
	})
}

// runTool calls a tool for a person: its text, or with --json its result object.
func (a *app) runTool(ctx context.Context, session, name string, params map[string]any) error {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return err
		}
	}
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		res, err := s.Call(ctx, name, raw)
		if err != nil {
			return asUsage(err)
		}
		return a.print(res.Value, func(w io.Writer) { fmt.Fprintln(w, printable(res.Text)) })
	})
}
