package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	units "github.com/docker/go-units"
	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
)

func (a *app) newSessionAllowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "allow SESSION RULE…",
		Short: "Allow a session's programs to connect to hosts",
		Long: `Adds rules to the session's own: HOST[:PORT,…], *.HOST, python, node and so on, as for
--allow. They apply at once and stay. A rule replaces the same rule of wisbox session
deny. Programs that already run may lack the proxy's variables.`,
		Example: `  wisbox allow box pypi.org files.pythonhosted.org
  wisbox allow box git`,
		Args: atLeast("SESSION", "RULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeEgress(cmd.Context(), args[0], func(s *wisbox.Session) (*wisbox.Egress, error) {
				return s.Allow(cmd.Context(), args[1:]...)
			})
		},
	}
}

func (a *app) newSessionDenyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "deny SESSION RULE…",
		Short: "Deny a session's programs connections to hosts",
		Long: `Adds rules that override those that allow: HOST[:PORT,…] or *.HOST. Open connections
to these hosts are reset. A rule replaces the same rule of wisbox allow.`,
		Example: `  wisbox deny box uploads.example.com`,
		Args:    atLeast("SESSION", "RULE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeEgress(cmd.Context(), args[0], func(s *wisbox.Session) (*wisbox.Egress, error) {
				return s.Deny(cmd.Context(), args[1:]...)
			})
		},
	}
}

func (a *app) newSessionEgressCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "egress SESSION",
		Short: "Show a session's network rules, traffic and denied connections",
		Long: `Shows the session's rules, its traffic and the last denied connections. For a session
with --egress record it also shows the rules that its programs needed, as flags.`,
		Example: `  wisbox egress box`,
		Args:    exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeEgress(cmd.Context(), args[0], func(s *wisbox.Session) (*wisbox.Egress, error) {
				return s.Egress(cmd.Context())
			})
		},
	}
}

// changeEgress changes a session's rules by do and prints them.
func (a *app) changeEgress(ctx context.Context, name string, do func(*wisbox.Session) (*wisbox.Egress, error)) error {
	return a.withSession(ctx, name, func(s *wisbox.Session) error {
		e, err := do(s)
		if err != nil {
			return asUsage(err)
		}
		return a.print(e, func(w io.Writer) { printEgress(w, e) })
	})
}

func printEgress(w io.Writer, e *wisbox.Egress) {
	allow := e.Allow
	if e.Record {
		allow = append([]string{"public (while it is recorded)"}, allow...)
	}
	if len(allow) == 0 {
		allow = []string{"nothing: the session has no network"}
	}
	for _, line := range []struct {
		name  string
		rules []string
	}{{"allow", allow}, {"deny", e.Deny}, {"inject", e.Inject}} {
		if len(line.rules) > 0 {
			fmt.Fprintf(w, "%-10s %s\n", line.name, streams.Printable(strings.Join(line.rules, " ")))
		}
	}
	if e.Via != "" {
		fmt.Fprintf(w, "via        %s\n", streams.Printable(e.Via))
	}
	if e.Record {
		fmt.Fprintln(w, recordedText(e.Recorded))
	}
	if e.Serves || e.Traffic.In+e.Traffic.Out > 0 {
		fmt.Fprintf(w, "traffic    %s in, %s out\n", units.BytesSize(float64(e.Traffic.In)), units.BytesSize(float64(e.Traffic.Out)))
	}
	if e.Out > 0 {
		fmt.Fprintf(w, "may send   %s in all\n", units.BytesSize(float64(e.Out)))
	}
	for _, d := range e.Denied {
		fmt.Fprintf(w, "denied     %s %s\n", d.Time.Local().Format(time.TimeOnly), streams.Printable(d.String()))
	}
	if e.Problem != "" {
		fmt.Fprintf(w, "note: %s\n", e.Problem)
	}
}
