package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) newSnapshotCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Keep a session's workspace as it is, compare it, bring it back",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var label string
	create := &cobra.Command{
		Use: "create SESSION", Short: "Keep the workspace as it is", Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTool(cmd.Context(), args[0], "snapshot_create", optional("label", label))
		},
	}
	create.Flags().StringVar(&label, "label", "", "one line that says what it is")
	diff := &cobra.Command{
		Use: "diff SESSION SNAPSHOT [SNAPSHOT]", Short: "Compare a snapshot with the workspace, or with another one",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				return nil
			}
			return exactArgs("SESSION", "SNAPSHOT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			params := map[string]string{"from": args[1]}
			if len(args) == 3 {
				params["to"] = args[2]
			}
			return a.runTool(cmd.Context(), args[0], "snapshot_diff", params)
		},
	}
	cmd.AddCommand(create, diff,
		&cobra.Command{
			Use: "list SESSION", Aliases: []string{"ls"}, Short: "List the snapshots", Args: exactArgs("SESSION"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runTool(cmd.Context(), args[0], "snapshot_list", nil)
			},
		},
		&cobra.Command{
			Use: "restore SESSION SNAPSHOT", Short: "Bring the workspace back, in place", Args: exactArgs("SESSION", "SNAPSHOT"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runTool(cmd.Context(), args[0], "snapshot_restore", map[string]string{"snapshot_id": args[1]})
			},
		})
	return cmd
}

func optional(name, value string) map[string]string {
	if value == "" {
		return nil
	}
	return map[string]string{name: value}
}

// runTool calls a tool for a person: its text, or with --json its result object.
func (a *app) runTool(ctx context.Context, session, name string, params map[string]string) error {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return err
		}
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Attach(ctx, session)
	if err != nil {
		return err
	}
	defer func() { _ = a.closeSession(ctx, s) }()
	res, err := s.Call(ctx, name, raw)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(res.Value)
	}
	fmt.Fprintln(a.out, printable(res.Text))
	return nil
}
