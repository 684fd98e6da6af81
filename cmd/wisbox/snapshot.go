package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newSnapshotCmd() *cobra.Command {
	var quiesce bool
	create := &cobra.Command{
		Use: "create SESSION [NAME]", Short: "Create a snapshot of the workspace", Args: exactArgs("SESSION", "[NAME]"),
		Long: `Creates a snapshot of the workspace and prints its ID. Other commands take NAME, the ID
or the beginning of the ID as SNAPSHOT; wisbox diff SESSION SNAPSHOT compares. NAME is one
line of at most 200 characters.`,
		Example: `  wisbox snapshot create box before-upgrade
  wisbox snapshot restore box before-upgrade`,
		RunE: func(cmd *cobra.Command, args []string) error {
			label := strings.Join(args[1:], "")
			return a.runTool(cmd.Context(), args[0], "snapshot_create", given(map[string]any{"label": label, "quiesce": quiesce}))
		},
	}
	restore := &cobra.Command{
		Use: "restore SESSION SNAPSHOT", Short: "Restore the workspace to a snapshot, in place", Args: exactArgs("SESSION", "SNAPSHOT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runTool(cmd.Context(), args[0], "snapshot_restore", given(map[string]any{"snapshot_id": args[1], "quiesce": quiesce}))
		},
	}
	for _, c := range []*cobra.Command{create, restore} {
		c.Flags().BoolVar(&quiesce, "quiesce", false, "pause the session's programs meanwhile, if the host can")
	}
	return group("snapshot", "Create and restore snapshots of a session's workspace", create, restore,
		&cobra.Command{
			Use: "list SESSION", Aliases: []string{"ls"}, Short: "List the snapshots", Args: exactArgs("SESSION"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runSnapshotList(cmd.Context(), args[0])
			},
		},
		&cobra.Command{
			Use: "rm SESSION SNAPSHOT…", Short: "Delete snapshots and free their space",
			Args: atLeast("SESSION", "SNAPSHOT"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.runSnapshotRm(cmd.Context(), args[0], args[1:])
			},
		})
}

// listed is one snapshot of snapshot_list.
type listed struct {
	ID      string    `json:"snapshot_id"`
	Label   string    `json:"label"`
	Created time.Time `json:"created_at"`
	Files   int64     `json:"files"`
	Bytes   int64     `json:"bytes"`
}

func (a *app) runSnapshotList(ctx context.Context, session string) error {
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		res, err := s.CallOwn(ctx, "snapshot_list", nil)
		if err != nil {
			return err
		}
		all, err := listedOf(res)
		return errors.Join(err, a.print(res.Value, func(w io.Writer) { printSnapshots(w, all, session) }))
	})
}

type listing struct {
	Snapshots []listed `json:"snapshots"`
	Unlisted  int      `json:"unlisted_steps"`
}

func listedOf(res *tool.Result) (out listing, err error) {
	raw, err := json.Marshal(res.Value)
	return out, errors.Join(err, json.Unmarshal(raw, &out))
}

func printSnapshots(w io.Writer, all listing, session string) {
	tw := newTable(w, "SNAPSHOT", "CREATED", "FILES", "SIZE", "NAME")
	for _, s := range all.Snapshots {
		tw.row(s.ID, s.Created.Local().Format(time.DateTime), s.Files, units.HumanSize(float64(s.Bytes)), oneLine(s.Label))
	}
	_ = tw.Flush()
	if all.Unlisted > 0 {
		fmt.Fprintf(w, "steps for undo that are not listed: %d; see: wisbox undo %s --list\n", all.Unlisted, session)
	}
}

// given drops parameters that weren't given.
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

// runTool calls a tool for a person and prints its text, or with --json its result object.
func (a *app) runTool(ctx context.Context, session, name string, params map[string]any) error {
	var raw json.RawMessage
	if params != nil {
		var err error
		if raw, err = json.Marshal(params); err != nil {
			return err
		}
	}
	return a.withSession(ctx, session, func(s *wisbox.Session) error {
		res, err := s.CallOwn(ctx, name, raw)
		if err != nil {
			return asUsage(err)
		}
		return a.print(res.Value, func(w io.Writer) { fmt.Fprintln(w, streams.Printable(res.Text)) })
	})
}
