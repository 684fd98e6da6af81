package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
)

func (a *app) newLogCmd() *cobra.Command {
	var tail int
	var network bool
	cmd := &cobra.Command{
		Use:     "history SESSION",
		Aliases: []string{"log"},
		Short:   "Show a session's calls: time, outcome and changed files",
		Long: `Shows the session's log: one record per call, without content, code or variables.
Which files a program changed is not known in a session with --no-undo, or of run, eval
or serve; CHANGED shows unknown. wisbox undo takes the id under CALL. Calls that run now
come last, with the outcome "running"; the log gets their record at their end.
With --json each record is a JSON object, also with the caller, the arguments, and the
hashes of the files that the tool changed.
--network shows connections instead, made and denied.`,
		Example: `  wisbox history box --tail 20
  wisbox history box --network
  wisbox history verify box`,
		Args: exactArgs("SESSION"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.runLog(cmd.Context(), args[0], tail, network) },
	}
	cmd.Flags().BoolVar(&network, "network", false, "show connections instead of calls")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "show only the last `N` records (default all)")
	cmd.AddCommand(a.newLogVerifyCmd())
	return cmd
}

func (a *app) newLogVerifyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "verify SESSION",
		Short: "Check a session's log for changed or missing records",
		Long: `Finds records that were changed, removed, added or cut short, and reports where; the exit
code is then 1. Every record has the hash of the one before.
It also checks the log of the session's connections, if there were any.
It prints the head, the hash of the last record: if you keep it elsewhere, you can
prove later that the log up to there is unchanged.`,
		Args: exactArgs("SESSION"),
		RunE: func(_ *cobra.Command, args []string) error { return a.runLogVerify(args[0]) },
	}
}

func (a *app) runLog(ctx context.Context, session string, tail int, network bool) error {
	if tail < 0 {
		return usageError{fmt.Errorf("--tail is %d; it can't be negative", tail)}
	}
	m, err := a.manager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	var lines ring
	lines.max = tail
	var running [][]byte
	if !network {
		running = runningLines(ctx, m, session) // first: a call that ends meanwhile has its record below
	}
	if err := m.Log(ctx, session, network, lines.add); err != nil {
		return asUsage(err)
	}
	lines.addMissing(running)
	print := printLog
	if network {
		print = printConnections
	}
	if a.json {
		for _, line := range lines.kept {
			fmt.Fprintln(a.out, streams.PrintableJSON(string(line)))
		}
		return nil
	}
	print(a.out, lines.kept)
	if network {
		return nil
	}
	return a.mentionConnections(ctx, m, session)
}

// ring keeps the last lines; all if max is 0.
type ring struct {
	max  int
	kept [][]byte
}

func (r *ring) add(line []byte) error {
	r.kept = append(r.kept, line)
	if r.max > 0 && len(r.kept) > r.max {
		r.kept = r.kept[1:]
	}
	return nil
}

// addMissing adds the running calls that have no record yet.
func (r *ring) addMissing(running [][]byte) {
	for _, line := range running {
		var e wisbox.Event
		if json.Unmarshal(line, &e) == nil && !slices.ContainsFunc(r.kept, func(l []byte) bool { return bytes.Contains(l, []byte(`"call":"`+e.Call+`"`)) }) {
			_ = r.add(line)
		}
	}
}

// runningWait bounds the question for running calls, so that a holder that is stopped doesn't
// delay the log.
var runningWait = patience.For(2 * time.Second)

// runningLines are the calls that run now, as lines of the log; none if nobody can say.
func runningLines(ctx context.Context, m *wisbox.Manager, session string) (lines [][]byte) {
	ctx, cancel := context.WithTimeout(ctx, runningWait)
	defer cancel()
	s, err := m.Attach(ctx, session)
	if err != nil {
		return nil
	}
	defer func() { _ = s.Close(context.WithoutCancel(ctx)) }()
	calls, err := s.Running(ctx)
	if err != nil {
		return nil
	}
	for _, e := range calls {
		if line, err := json.Marshal(e); err == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

func printLog(w io.Writer, lines [][]byte) {
	if len(lines) == 0 {
		fmt.Fprintln(w, "no call was made in this session yet")
		return
	}
	tw := newTable(w, "TIME", "CALL", "TOOL", "OUTCOME", "TOOK", "CHANGED", "WHAT")
	for _, line := range lines {
		var e wisbox.Event
		if json.Unmarshal(line, &e) != nil {
			continue // a line of another version
		}
		tw.row(e.Time.Local().Format(time.DateTime), oneLine(e.Call), oneLine(e.Tool), outcome(e),
			rounded(e.Duration), oneLine(changed(e.Effects)), oneLine(about(e)))
	}
	_ = tw.Flush()
}

// rounded returns a duration with about three digits.
func rounded(d time.Duration) time.Duration {
	for _, step := range []time.Duration{time.Minute, time.Second, time.Millisecond} {
		if d >= step {
			return d.Round(step / 100)
		}
	}
	return d.Round(10 * time.Microsecond)
}

// outcome returns how a call ended, and how its program ended unless it exited.
func outcome(e wisbox.Event) string {
	switch code, known := e.Args["exit_code"].(float64); {
	case known && e.Verdict == string(sandbox.StatusExited):
		return fmt.Sprintf("exit %v", code)
	case e.Verdict != "" && e.Verdict != string(sandbox.StatusExited):
		return oneLine(e.Verdict)
	}
	return oneLine(e.Outcome)
}

// about describes a call: its path, its command, and its error.
func about(e wisbox.Event) string {
	what := whatIs("", e)
	switch {
	case e.Message == "":
		return what
	case what == "":
		return e.Message
	}
	return what + ": " + e.Message
}

const namedChanges = 3 // shown for each call in the table

// changed lists the files that a call changed; removed files have a minus.
func changed(e wisbox.Effects) string {
	switch {
	case e.RolledBack:
		return "rolled back"
	case e.Unknown && len(e.Changes) == 0:
		return "unknown"
	}
	var names []string
	for _, c := range e.Changes[:min(len(e.Changes), namedChanges)] {
		sign := ""
		if c.Removed {
			sign = "-"
		}
		names = append(names, sign+c.Path)
	}
	if more := e.More + int64(len(e.Changes)-len(names)); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	if e.Unknown {
		names = append(names, "others unknown")
	}
	return strings.Join(names, ", ")
}

// oneLine returns s on one line, so that it fits a cell of a table.
func oneLine(s string) string { return streams.Printable(strings.Join(strings.Fields(s), " ")) }

func (a *app) runLogVerify(session string) error {
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return err
	}
	defer store.Close()
	report, err := store.VerifyLog(session)
	if err != nil {
		return asUsage(err)
	}
	network, err := store.VerifyEgressLog(session)
	if err != nil {
		return asUsage(err)
	}
	both := logReports{LogReport: report}
	if network.Records > 0 || len(network.Problems) > 0 {
		both.Network = network
	}
	if err := a.print(both, both.write); err != nil {
		return err
	}
	if len(report.Problems)+len(network.Problems) > 0 {
		return exitCode(exitError)
	}
	return nil
}

func printLogReport(w io.Writer, r *overlay.LogReport) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "%s:%d: %s: %s\n", p.File, p.Line, p.Kind, p.Message)
	}
	if len(r.Problems) == 0 {
		fmt.Fprintln(w, "the log is intact: no record was changed or removed")
	}
	if r.Waiting > 0 {
		fmt.Fprintf(w, "%d more wait to be chained: another process holds the log, perhaps one that is stopped\n", r.Waiting)
	}
	fmt.Fprintf(w, "%d records; head %d %s\n", r.Records, r.Head.Seq, r.Head.Hash)
}
