package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	units "github.com/docker/go-units"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// agentReport describes an agent's run and its changes.
type agentReport struct {
	Agent   string         `json:"agent"`
	Session string         `json:"session"`
	Kept    bool           `json:"kept"` // the session still exists
	Image   string         `json:"image"`
	Began   time.Time      `json:"began_at"`
	Verdict verdict        `json:"verdict"`
	Program *programResult `json:"program,omitempty"` // absent if the agent had a terminal, or if nothing ran

	Changes *wisbox.Diff `json:"changes,omitempty"`
	// RunByThemselves are changed files from which programs of the host may take settings or
	// commands.
	RunByThemselves []string             `json:"run_by_themselves,omitempty"`
	Connections     []connections        `json:"connections"`
	Denied          []connections        `json:"denied"`
	Limits          []sandbox.LimitState `json:"limits,omitempty"`
	Log             logReports           `json:"log"`

	Applied  *wisbox.Applied  `json:"applied,omitempty"`
	Branched *wisbox.Branched `json:"branched,omitempty"`
	NotHome  string           `json:"not_brought_home,omitempty"` // why --apply or --branch did nothing
	Next     []string         `json:"next"`

	server   *url.URL // of the API
	answered int      // the status of its last answer, 0 for none
}

// connections counts the connections to one host and port.
type connections struct {
	Host   string `json:"host"`
	Port   int    `json:"port"`
	Count  int64  `json:"count"`
	In     int64  `json:"bytes_in,omitempty"`
	Out    int64  `json:"bytes_out,omitempty"`
	Reason string `json:"reason,omitempty"` // of the denials
	Allow  string `json:"allow,omitempty"`  // the rule that would allow them
	Advice string `json:"advice,omitempty"` // what else helps
}

// finishGrace bounds the work after the agent's end, also after a signal.
const finishGrace = 10 * time.Minute

// finishAgent collects the agent's changes, brings them home if a flag asks for it, ends the
// session, which gives up the key, and reports. ran is the error of the agent's run.
func (a *app) finishAgent(ctx context.Context, m *wisbox.Manager, s *wisbox.Session, o *agentOptions, r *agentReport, ran error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishGrace)
	defer cancel()
	err := errors.Join(r.look(ctx, s), a.readAnswers(r))
	interrupt := a.signals.Received()
	ended := r.judge(interrupt, ran)
	changed := err == nil && len(r.Changes.Changes) > 0
	if changed && (o.apply || o.branch != "") {
		r.bringHome(ctx, s, o, ended)
	}
	err = errors.Join(err, a.closeSession(ctx, s), m.Stop(ctx, s.ID()), a.readLogs(r))
	r.Kept = o.keep || err != nil || changed && !r.isHome()
	if !r.Kept {
		err = m.Remove(ctx, s.ID())
	}
	if err == nil && !changed && neverRan(ran) {
		return ran
	}
	ended = r.judge(interrupt, ran) // the last lines of the log may have come late
	r.next()
	if a.json {
		err = errors.Join(err, a.printJSON(r))
	} else {
		a.writeAgentReport(a.err, r)
	}
	if ended == nil && r.NotHome != "" {
		ended = exitCode(exitError)
	}
	return errors.Join(ended, err)
}

// look reads the changes and the enforced limits while the container exists.
func (r *agentReport) look(ctx context.Context, s *wisbox.Session) error {
	in, err := s.Inspect(ctx)
	if err != nil {
		return err
	}
	r.Image = in.Image
	if in.Sandbox != nil {
		r.Limits = in.Limits
	}
	if r.Changes, err = s.Diff(ctx, &wisbox.DiffOptions{Lines: true}); err != nil {
		return err
	}
	r.RunByThemselves = runByThemselves(s.Files(), r.Changes.Changes, hookFolders(ctx, s.Options().Mounts))
	return nil
}

// bringHome does the work of --apply and --branch, or records why it can't.
func (r *agentReport) bringHome(ctx context.Context, s *wisbox.Session, o *agentOptions, ended error) {
	switch {
	case ended != nil:
		r.NotHome = cmp.Or(r.Verdict.text(r.Agent), "the agent failed")
	case o.branch != "":
		done, err := s.Branch(ctx, &wisbox.BranchOptions{Name: o.branch})
		switch {
		case err != nil:
			r.NotHome = tool.AsError(err).Message
		case done.Commit == "":
			r.NotHome = "the repository ignores the changes, or already has them"
		default:
			r.Branched = done
		}
	case len(r.RunByThemselves) > 0 || r.Changes.More > 0:
		r.NotHome = "programs on this machine may run commands from some of the changed files without asking; check those files, then use wisbox apply"
	default:
		if done, err := s.Apply(ctx, nil); err != nil {
			r.NotHome = tool.AsError(err).Message
		} else {
			r.Applied = done
		}
	}
}

// isHome reports whether all changes are also outside of the session.
func (r *agentReport) isHome() bool {
	return r.Applied != nil && len(r.Applied.LeftOut) == 0 ||
		r.Branched != nil && len(r.Branched.LeftOut) == 0 && r.Branched.Ignored == 0
}

// readLogs reads the connections and the heads of both logs, after the last record.
func (a *app) readLogs(r *agentReport) error {
	r.Connections, r.Denied = []connections{}, []connections{}
	store, err := overlay.OpenStore(a.cache)
	if err != nil {
		return err
	}
	defer store.Close()
	calls, err := store.VerifyLog(r.Session)
	if err != nil {
		return err
	}
	r.Log.LogReport = calls
	network, err := store.VerifyEgressLog(r.Session)
	if err != nil {
		return err
	}
	if network.Records > 0 || len(network.Problems) > 0 {
		r.Log.Network = network
	}
	return store.EgressLog(r.Session, r.connection)
}

// connection counts a line of the log of connections, and takes an answer of the API from it.
func (r *agentReport) connection(line []byte) error {
	var l egress.Line
	if json.Unmarshal(line, &l) != nil {
		return nil // a line of another version
	}
	r.answer(&l)
	into, n := &r.Connections, int64(0)
	one := connections{Host: l.Host, Port: l.Port}
	switch l.Event {
	case "open":
		n = 1
	case "close":
	case "denied":
		into, n = &r.Denied, max(1, l.Count) // a line with a count stands for denials after the first
		one.Reason, one.Allow, one.Advice = l.Reason, l.Allow, l.Advice
	default:
		return nil
	}
	i := slices.IndexFunc(*into, func(c connections) bool {
		return c.Host == one.Host && c.Port == one.Port && c.Reason == one.Reason
	})
	if i < 0 {
		i = len(*into)
		*into = append(*into, one)
	}
	c := &(*into)[i]
	c.Count, c.In, c.Out = c.Count+n, c.In+l.In, c.Out+l.Out
	return nil
}

// next sets the commands that a person may run now.
func (r *agentReport) next() {
	r.Next = []string{}
	if !r.Kept {
		return
	}
	if r.Changes != nil && len(r.Changes.Changes) > 0 {
		r.Next = append(r.Next, "wisbox diff "+r.Session+" --patch")
		if r.Applied == nil && r.Branched == nil {
			r.Next = append(r.Next, "wisbox apply "+r.Session, "wisbox branch "+r.Session)
		}
	}
	r.Next = append(r.Next, "wisbox history "+r.Session, "wisbox rm "+r.Session)
}

// writeAgentReport writes lines of a name and a text. Names and paths may come from a program.
func (a *app) writeAgentReport(w io.Writer, r *agentReport) {
	say := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-10s %s\n", name, strings.TrimRight(streams.Printable(fmt.Sprintf(format, args...)), "\n"))
	}
	where := "which was removed"
	if r.Kept {
		where = "which stays"
	}
	fmt.Fprintf(w, "wisbox: the report of %s in the session %s, %s\n", r.Agent, r.Session, where)
	if text := r.Verdict.text(r.Agent); text != "" {
		say("ended", "%s", text)
	}
	if r.Changes != nil {
		say("changes", "%s", r.changesText())
	}
	for _, name := range r.RunByThemselves {
		say("careful", "%s: programs on this machine may run commands from this file without asking; check it first", shownPath(name))
	}
	for _, c := range r.Connections {
		say("connected", "%s:%d, %s, %s in, %s out", c.Host, c.Port, quantity(c.Count, "connection", "connections"), units.BytesSize(float64(c.In)), units.BytesSize(float64(c.Out)))
	}
	if len(r.Connections) == 0 {
		say("connected", "to nothing")
	}
	for _, c := range r.Denied {
		say("denied", "%s:%d, %s: %s", c.Host, c.Port, quantity(c.Count, "time", "times"), oneLine(c.Reason))
	}
	for _, advice := range r.advice() {
		say("", "%s", advice)
	}
	var held, not []string
	for _, l := range r.Limits {
		if l.Enforced {
			held = append(held, l.Name+" "+l.Asked)
		} else {
			not = append(not, l.Name+" "+l.Asked+" ("+l.By+")")
		}
	}
	if len(held) > 0 {
		say("limits", "%s", strings.Join(held, ", "))
	}
	if len(not) > 0 {
		say("not held", "%s", strings.Join(not, ", "))
	}
	if r.Log.LogReport != nil {
		say("log", "%s", headText(r.Log.LogReport))
	}
	if r.Log.Network != nil {
		say("log", "of connections: %s", headText(r.Log.Network))
	}
	var left []wisbox.Obstacle
	switch {
	case r.Applied != nil:
		say("applied", "%s", quantity(int64(len(r.Applied.Changes))+r.Applied.More, "change", "changes"))
		left = r.Applied.LeftOut
	case r.Branched != nil:
		say("branch", "%s, commit %.12s; look: git log -p %.12s..%[1]s", r.Branched.Branch, r.Branched.Commit, r.Branched.Base)
		left = r.Branched.LeftOut
		if n := r.Branched.Ignored; n > 0 {
			say("left out", "%s that the repository ignores", quantity(n, "new file", "new files"))
		}
	case r.NotHome != "":
		say("not done", "nothing was brought home: %s", r.NotHome)
	}
	for _, c := range left {
		say("left out", "%s: %s", shownPath(c.Path), c.Reason)
	}
	for _, next := range r.Next {
		say("next", "%s", next)
	}
}

// mostRules is the maximum of rules in the advice about denials.
const mostRules = 5

// advice returns what helps against the denials, by their reasons.
func (r *agentReport) advice() (lines []string) {
	var rules []string
	for _, c := range r.Denied {
		switch {
		case c.Allow != "" && !slices.Contains(rules, "--allow "+c.Allow):
			rules = append(rules, "--allow "+c.Allow)
		case c.Advice != "" && !slices.Contains(lines, c.Advice):
			lines = append(lines, c.Advice)
		}
	}
	if n := len(rules) - mostRules; n > 0 {
		rules = append(rules[:mostRules], fmt.Sprintf("and %d more", n))
	}
	if len(rules) > 0 {
		lines = append(lines, "if the agent needs it: "+strings.Join(rules, " "))
	}
	return lines
}

func (r *agentReport) changesText() string {
	if len(r.Changes.Changes) == 0 {
		return "none"
	}
	var b bytes.Buffer
	(&diffOptions{stat: true}).write(&b, r.Changes)
	return strings.ReplaceAll(strings.TrimSpace(b.String()), "\n", "\n"+strings.Repeat(" ", 11))
}

func headText(l *overlay.LogReport) string {
	text := fmt.Sprintf("%s, head %d %s", quantity(int64(l.Records), "record", "records"), l.Head.Seq, l.Head.Hash)
	if len(l.Problems) > 0 {
		text += "; records were changed or removed, see: wisbox history verify"
	}
	return text
}
