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
)

func (a *app) newSessionAllowCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "allow SESSION RULE…",
		Short: "Let the programs of a session connect to more hosts",
		Long: `Adds rules to those that the session was created with: HOST[:PORT,…], *.HOST,
python, node and so on, as --allow takes them. They hold from now on, and are
kept. What was denied by the same rule no longer is. Programs that run already
may lack the variables that name the proxy.`,
		Example: `  wisbox session allow box pypi.org files.pythonhosted.org
  wisbox session allow box git`,
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
		Short: "Stop the programs of a session from connecting to hosts",
		Long: `Adds rules that win over all that allow: HOST[:PORT,…] or *.HOST. Open connections
that they deny are reset. A rule that allowed by the same text is taken back.`,
		Example: `  wisbox session deny box uploads.example.com`,
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
		Short: "Show where a session's programs may connect to, and what they did",
		Long: `Shows the session's rules, its traffic and what was last denied. For a session with
--egress record it shows the rules that its programs needed so far, as flags.`,
		Example: `  wisbox session egress box`,
		Args:    exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeEgress(cmd.Context(), args[0], func(s *wisbox.Session) (*wisbox.Egress, error) {
				return s.Egress(cmd.Context())
			})
		},
	}
}

// changeEgress does something with a session's rules and prints them.
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
			fmt.Fprintf(w, "%-10s %s\n", line.name, printable(strings.Join(line.rules, " ")))
		}
	}
	if e.Via != "" {
		fmt.Fprintf(w, "via        %s\n", printable(e.Via))
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
		fmt.Fprintf(w, "denied     %s %s\n", d.Time.Local().Format(time.TimeOnly), printable(d.String()))
	}
	if e.Problem != "" {
		fmt.Fprintf(w, "note: %s\n", e.Problem)
	}
}
