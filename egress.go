package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Egress has a session's network rules and its traffic.
type Egress = door.View

// Egress returns the session's network rules, its traffic and the last denied connections.
func (s *Session) Egress(ctx context.Context) (*Egress, error) {
	return perform[*Egress](ctx, s, egressOp{}, hold.Streams{})
}

// Allow adds rules to those of [SessionOptions.Allow], from now on and for as long as
// the session is kept. A rule to deny with the same text is removed.
func (s *Session) Allow(ctx context.Context, rules ...string) (*Egress, error) {
	return perform[*Egress](ctx, s, egressRulesOp{Allow: rules}, hold.Streams{})
}

// Deny adds rules to those of [SessionOptions.Deny]. Connections that they deny are reset. A rule to
// allow with the same text is removed.
func (s *Session) Deny(ctx context.Context, rules ...string) (*Egress, error) {
	return perform[*Egress](ctx, s, egressRulesOp{Deny: rules}, hold.Streams{})
}

// SetRules replaces the rules of [SessionOptions.Allow] and [SessionOptions.Deny]. Connections that
// the new rules don't allow are reset. Without a rule to allow there is no network.
func (s *Session) SetRules(ctx context.Context, allow, deny []string) (*Egress, error) {
	return perform[*Egress](ctx, s, egressRulesOp{Allow: allow, Deny: deny, Replace: true}, hold.Streams{})
}

func (o *SessionOptions) rules() door.Rules {
	return door.Rules{
		Settings: policy.Settings{Allow: o.Allow, Deny: o.Deny, Inject: o.Inject, Record: o.EgressRecord}, Via: o.EgressVia, Out: o.EgressOut,
	}
}

func (o *SessionOptions) setRules(r door.Rules) {
	o.Allow, o.Deny, o.Inject, o.EgressRecord, o.EgressVia, o.EgressOut = r.Allow, r.Deny, r.Inject, r.Record, r.Via, r.Out
}

// checkEgress returns an error that names the invalid rule and its part.
func (o *SessionOptions) checkEgress() error {
	if _, _, err := o.rules().Parse(); err != nil {
		return badRule(err)
	}
	for _, name := range o.rules().Secrets() {
		if _, ok := o.Secrets[name]; !ok {
			return tool.Errorf(tool.Invalid, "inject uses secret %s, which the session doesn't have; give it with --secret %s=FILE", name, name).In("inject")
		}
	}
	return nil
}

func badRule(err error) error {
	field, _, _ := strings.Cut(err.Error(), " ")
	return tool.Errorf(tool.Invalid, "%s", err).In(field)
}

// noPod refuses rules in a Pod: its programs have the network of this process, and would get past them.
func (l *local) noPod(r door.Rules) error {
	if !l.m.opts.Single {
		return nil
	}
	for field, asked := range map[string]bool{
		"allow": len(r.Allow) > 0, "deny": len(r.Deny) > 0, "inject": len(r.Inject) > 0, "egress_record": r.Record, "egress_via": r.Via != "",
	} {
		if asked {
			return errNotOnPods(field, podNetwork).In(field)
		}
	}
	return nil
}

func (l *local) newDoor() (*door.Door, error) {
	if err := l.noPod(l.opts.rules()); err != nil {
		return nil, err
	}
	opts := &door.Options{
		Rules: l.opts.rules(), Secret: l.headerValue, Journal: egressJournal{l}, Own: l.opts.Env, Log: l.m.log,
	}
	if l.opts.Kept {
		opts.Session, opts.Keep = l.dir.ID(), l.keepEgress
		opts.Before = keptEgress(l.dir)
	}
	l.secrets.Hide(opts.Rules.Secrets())
	d, err := door.New(opts)
	if err != nil {
		return nil, badRule(err)
	}
	return d, nil
}

// egressRecord is the file, in the session's directory, with its traffic and the rules that a
// recording needed: bounds apply to the session, not to one holder.
const egressRecord = "egress.json"

// keptEgress returns the record, or the zero Memory if there is none.
func keptEgress(dir *overlay.Dir) (kept door.Memory) {
	raw, err := os.ReadFile(filepath.Join(sessionPath(dir), egressRecord))
	if err == nil {
		_ = json.Unmarshal(raw, &kept) // the file is always replaced as a whole
	}
	return kept
}

func (l *local) keepEgress(m door.Memory) {
	raw, err := json.Marshal(m)
	path := filepath.Join(sessionPath(l.dir), egressRecord)
	if err == nil {
		err = os.WriteFile(path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		l.m.log.Warn("keep the session's traffic", "session", l.dir.ID(), "error", err)
	}
}

// headerValue returns a secret as the value of a header, without the line break at a file's end.
func (l *local) headerValue(name string) (string, error) {
	values, _ := l.secrets.Values()
	value, ok := values[name]
	if !ok {
		return "", errors.New("its value is gone; give it again")
	}
	return strings.TrimRight(string(value), "\r\n"), nil
}

// egressJournal is the log of a session's connections.
type egressJournal struct{ l *local }

// Append implements [egress.Journal].
func (j egressJournal) Append(record any) error {
	if line, ok := record.(egress.Line); ok {
		line.Session = j.l.dir.ID()
		record = line
	}
	if r := j.l.secrets.Redactor(); r != nil {
		record = r.Value(record)
	}
	return j.l.dir.AppendEgress(record)
}

// sayDenied adds the denials to the result of a call that ran programs. A profile's results have no
// field for them, so there it adds them to the text.
func (l *local) sayDenied(res *tool.Result, since door.Mark, own bool) *tool.Result {
	value, ok := res.Value.(tool.Networked)
	if !ok && (own || ownNames(l.opts.Profile)) {
		return res
	}
	denied := l.door.DeniedSince(since)
	if len(denied) == 0 {
		return res
	}
	said := *res
	if ok {
		said.Value, said.Text = value.WithDenied(denied)
	} else {
		said.Text += "\n[network denied: " + strings.Join(denied, "]\n[network denied: ") + "]"
	}
	return &said
}

// sayClosed adds to the result of code that failed to reach a host how to allow it. Results of programs
// have it as a notice already, which a profile's don't show.
func (l *local) sayClosed(ctx context.Context, res *tool.Result, own bool) *tool.Result {
	r, evaluated := res.Value.(evaltool.Result)
	inProfile := !own && !ownNames(l.opts.Profile)
	if !evaluated && !inProfile || !l.closed(ctx) {
		return res
	}
	output := res.Text
	if evaluated && !res.Failed {
		output = r.Stderr
	}
	hint := l.door.Explain([]byte(output))
	if hint == "" || strings.Contains(res.Text, sandbox.NoNetwork) {
		return res
	}
	said := *res
	if evaluated {
		r.Message = strings.TrimPrefix(r.Message+"; "+hint, "; ")
		said.Value, said.Text = r, r.Text()
	} else {
		said.Text += "\n[" + hint + "]"
	}
	return &said
}

// closedEgress returns the Egress of a session that has no sandbox now.
func closedEgress(dir *overlay.Dir, o SessionOptions) Egress {
	before := keptEgress(dir)
	return Egress{Rules: o.rules().Shown(), Traffic: before.Traffic, Recorded: before.Recorded}
}

// shownEgress returns nil if there never was a rule.
func shownEgress(v door.View) *Egress {
	if !v.Opens() && len(v.Deny) == 0 && !v.Serves && v.Traffic == (egress.Traffic{}) {
		return nil
	}
	v.Rules = v.Shown()
	return &v
}

// egressOp reads the rules and the traffic, and leaves no record.
type egressOp struct{}

func (o egressOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	view, err := l.door.View(ctx)
	return &view, journal.Outcome{}, err
}

// egressRulesOp changes the rules.
type egressRulesOp struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Replace replaces the existing rules.
	Replace bool `json:"replace,omitempty"`
}

func (o egressRulesOp) event() Event {
	args := map[string]any{}
	for name, rules := range map[string][]string{"allow": o.Allow, "deny": o.Deny} {
		if len(rules) > 0 {
			args[name] = strings.Join(rules, " ")
		}
	}
	return Event{Tool: "egress", Args: args}
}

func (o egressRulesOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	if err := l.changeRules(ctx, o); err != nil {
		return nil, journal.Outcome{}, err
	}
	view, err := l.door.View(ctx)
	return &view, journal.Outcome{}, err
}

func (l *local) changeRules(ctx context.Context, o egressRulesOp) error {
	if len(o.Allow)+len(o.Deny) == 0 && !o.Replace {
		return tool.Errorf(tool.Invalid, "allow has no rule; give at least one")
	}
	if err := l.noPod(door.Rules{Settings: policy.Settings{Allow: o.Allow, Deny: o.Deny}}); err != nil {
		return err
	}
	if err := l.fit(ctx); err != nil {
		return err
	}
	change := l.door.Change
	if o.Replace {
		change = l.door.Replace
	}
	err := change(ctx, o.Allow, o.Deny, func(next door.Rules) error {
		return l.updateSettings(ctx, func(opts *SessionOptions) { opts.setRules(next) })
	})
	if wrong, ok := errors.AsType[*door.RuleError](err); ok {
		return badRule(wrong)
	}
	if err != nil {
		return err
	}
	return l.box.Ready(ctx)
}

// Dial connects to a program in the session's sandbox that listens on a TCP port of 127.0.0.1
// (including 0.0.0.0) or ::1. It needs no rule: it can't reach anything on the host, and nothing else
// on this machine can use the connection. ctx bounds only the dialing, which takes at most 5 s; the
// connection then stays until it is closed or the program ends. If no program listens, the error is
// not_found, and no sandbox is created for it. Dial leaves no record.
//
// The connection is a *net.TCPConn, except if this process itself holds the session with gVisor or a
// Podman on another machine. It then has CloseWrite() error, and Reset() error for an end that must
// not look complete.
func (s *Session) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	var h handed
	_, err := perform[struct{}](ctx, s, dialOp{Port: port}, hold.Streams{Conn: h.give})
	conn := h.take()
	if err == nil && conn == nil {
		err = tool.Errorf(tool.Internal, "the session handed over no connection")
	}
	if err != nil && conn != nil {
		_ = conn.Close()
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// handed passes a connection to a caller, who may have left.
type handed struct{ at atomic.Pointer[net.Conn] }

func (h *handed) give(conn net.Conn) error {
	if !h.at.CompareAndSwap(nil, &conn) {
		return conn.Close()
	}
	return nil
}

// take takes the connection; one that arrives later is closed.
func (h *handed) take() net.Conn {
	if conn := h.at.Swap(new(net.Conn)); conn != nil {
		return *conn
	}
	return nil
}

// AwaitEnd waits until the session ends, because it is closed, removed, reset or over its time, or
// because the process that holds it ends. It returns the reason as a [*tool.Error], or the error of
// ctx. Meanwhile a kept session's sandbox stays, even without programs. watching, if it isn't nil, is
// called once every later end will be noticed.
func (s *Session) AwaitEnd(ctx context.Context, watching func()) error {
	io := hold.Streams{}
	if watching != nil {
		io.Stdout = calls(watching)
	}
	_, err := perform[struct{}](ctx, s, awaitEndOp{}, io)
	if ctx.Err() != nil {
		return asToolError(ctx.Err())
	}
	return err
}

// dialOp connects to a program of the session, and leaves no record.
type dialOp struct {
	Port uint16 `json:"port"`
}

// dialTime bounds a connection attempt: a program may accept none.
var dialTime = patience.For(5 * time.Second)

func (o dialOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if io.Conn == nil {
		return nil, journal.Outcome{}, tool.Errorf(tool.Invalid, "the caller can't take the connection")
	}
	if o.Port == 0 {
		return nil, journal.Outcome{}, tool.Errorf(tool.Invalid, "port is 0; it must be 1 to 65535").In("port")
	}
	if err := l.awake(); err != nil {
		return nil, journal.Outcome{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	conn, err := l.dial(ctx, o.Port)
	if err != nil {
		return nil, journal.Outcome{}, o.explain(err)
	}
	return struct{}{}, journal.Outcome{}, io.Conn(conn)
}

// explain adds what a caller can do about a failed connection.
func (o dialOp) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return tool.Errorf(tool.NotFound, "nothing listens on port %d of the session; start a server that listens there, on 127.0.0.1 or 0.0.0.0, with process_start or `wisbox exec --detach`", o.Port).In("port").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return tool.Errorf(tool.Timeout, "the program on port %d of the session doesn't accept connections; check whether it is busy or stopped", o.Port).In("port").Because(err)
	}
	return toolerr.Of(err)
}

func (l *local) dial(ctx context.Context, port uint16) (net.Conn, error) {
	sb, done, err := l.running(ctx)
	if err != nil {
		return nil, err
	}
	if sb == nil {
		return nil, syscall.ECONNREFUSED
	}
	defer done()
	dialer, ok := sandbox.As[sandbox.PortDialer](sb)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "ports of this session can't be reached: its sandbox has no network of its own")
	}
	return dialer.DialPort(ctx, port)
}

// calls calls a function at each write.
type calls func()

func (f calls) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// awaitEndOp lasts as long as the session, and leaves no record.
type awaitEndOp struct{}

// do writes something once it has begun, and then waits.
func (o awaitEndOp) do(ctx context.Context, _ *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if io.Stdout != nil {
		if _, err := io.Stdout.Write([]byte{'\n'}); err != nil {
			return nil, journal.Outcome{}, err
		}
	}
	<-ctx.Done()
	err := context.Cause(ctx)
	if tool.KindOf(err) != tool.Closed || errors.Is(err, context.Canceled) {
		err = tool.Errorf(tool.Closed, "the session has ended").Because(err)
	}
	return nil, journal.Outcome{}, err
}
