package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

func (a *app) newSessionCmd() *cobra.Command {
	return group("session", "Create, list, inspect, clone, save and remove sessions",
		a.newSessionCreateCmd(), a.newSessionListCmd(), a.newSessionInspectCmd(), a.newSessionSecretCmd(), a.newSessionRmCmd(),
		a.newSessionCloneCmd(), a.newSessionResetCmd(), a.newSessionSaveCmd(), a.newSessionLoadCmd())
}

func (a *app) newSessionCreateCmd() *cobra.Command {
	flags := &sessionFlags{}
	cmd := &cobra.Command{
		Use:   "create [NAME] [flags]",
		Short: "Create a session that stays until it is removed",
		Long: `Makes the session's workspace and copies the mounts in. The container comes with
the first program. Prints the session's name.`,
		Example: `  wisbox session create box --mount ./project:project --memory 2g
  wisbox session create --ttl 2h`,
		Args: exactArgs("[NAME]"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSessionCreate(cmd.Context(), flags, args) },
	}
	flags.register(cmd.Flags())
	return cmd
}

func (a *app) runSessionCreate(ctx context.Context, flags *sessionFlags, args []string) error {
	opts, err := a.sessionOptions(flags)
	if err != nil {
		return err
	}
	opts.Kept = true
	if len(args) == 1 {
		opts.Name = args[0]
		if opts.Name == "" {
			return usageError{errors.New("the name is empty; leave it out to get one")}
		}
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := a.open(ctx, m, flags, opts)
	if err != nil {
		return err
	}
	return a.leave(ctx, s)
}

func (a *app) newSessionListCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the sessions",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.runSessionList(cmd.Context()) },
	}
}

// sessionRow is one session as list prints it.
type sessionRow struct {
	ID       string     `json:"id"`
	State    string     `json:"state"`
	Kept     bool       `json:"kept"`
	InUse    bool       `json:"in_use"`
	Held     bool       `json:"held"`
	Created  *time.Time `json:"created_at,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"`
	Problem  string     `json:"problem,omitempty"`
}

func (a *app) runSessionList(ctx context.Context) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	entries, err := m.List(ctx)
	if err != nil {
		return err
	}
	rows := make([]sessionRow, 0, len(entries))
	for _, e := range entries {
		rows = append(rows, rowOf(e))
	}
	return a.print(map[string]any{"sessions": rows}, func(w io.Writer) { printSessions(w, rows) })
}

func printSessions(w io.Writer, rows []sessionRow) {
	if len(rows) == 0 {
		fmt.Fprintln(w, "there are no sessions; make one with: wisbox session create NAME")
		return
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SESSION\tSTATE\tKIND\tIN USE\tCREATED")
	for _, r := range rows {
		kind, created := "ephemeral", "unknown"
		if r.Kept {
			kind = "kept"
		}
		if r.Created != nil {
			created = r.Created.Local().Format(time.DateTime)
		}
		use := map[bool]string{true: "yes", false: "no"}[r.InUse]
		if r.Held {
			use = "held" // its container is kept for the next client
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", printable(r.ID), r.State, kind, use, created)
	}
	_ = tw.Flush()
}

func (a *app) newSessionInspectCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect SESSION",
		Short: "Show what a session is and which limits hold",
		Args:  exactArgs("SESSION"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.runSessionInspect(cmd.Context(), args[0]) },
	}
}

func (a *app) runSessionInspect(ctx context.Context, name string) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		in, err := s.Inspect(ctx)
		if err != nil {
			return err
		}
		return a.print(in, func(w io.Writer) { printInspection(w, in) })
	})
}

func printInspection(w io.Writer, in *wisbox.Inspection) {
	fmt.Fprintf(w, "session    %s (%s)\nworkspace  %s\nimage      %s\n", in.ID, in.State, in.Workspace, in.Image)
	if in.Sandbox == nil {
		fmt.Fprintln(w, "container  none yet: it comes with the first program")
	} else {
		fmt.Fprintf(w, "container  %.12s (%s, %s)\n", in.Sandbox.Object, in.Sandbox.State, in.Sandbox.Runtime)
	}
	printLimits(w, in.Limits)
	for _, gap := range in.Gaps {
		fmt.Fprintf(w, "note: %s\n", printable(gap))
	}
}

func printLimits(w io.Writer, limits []sandbox.LimitState) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "LIMIT\tASKED\tENFORCED\tBY")
	for _, l := range limits {
		fmt.Fprintf(tw, "%s\t%s\t%t\t%s\n", l.Name, l.Asked, l.Enforced, l.By)
	}
	_ = tw.Flush()
}

func (a *app) newSessionRmCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SESSION…",
		Short: "Remove sessions: their containers and their files",
		Long: `Removes sessions with their programs, files, snapshots and logs, and prints the
names of those that went. What can't be removed is told, and the others go.`,
		Args: atLeast("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runSessionRm(cmd.Context(), args) },
	}
}

func (a *app) runSessionRm(ctx context.Context, names []string) error {
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	removed, failed := []string{}, []error{}
	for _, name := range names {
		if err := m.Remove(ctx, name); err != nil {
			failed = append(failed, err)
			continue
		}
		removed = append(removed, name)
	}
	if len(removed) > 0 {
		err = a.print(map[string]any{"removed": removed}, func(w io.Writer) {
			for _, name := range removed {
				fmt.Fprintln(w, name)
			}
		})
	}
	if len(failed) == 0 {
		return err
	}
	last := len(failed) - 1
	for _, err := range failed[:last] {
		a.printError(tool.AsError(err))
	}
	return errors.Join(asUsage(failed[last]), err)
}

func rowOf(e overlay.Entry) sessionRow {
	row := sessionRow{ID: e.ID, State: string(e.State.Status), Kept: e.State.Kept, InUse: e.InUse, Held: e.Held, Problem: e.Problem}
	if !e.State.Created.At.IsZero() {
		row.Created, row.LastUsed = &e.State.Created.At, &e.State.LastUsed.At
	}
	return row
}
