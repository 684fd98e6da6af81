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
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/journal"
	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// Egress is what the programs of a session may connect to, and what they did.
type Egress = door.View

// Egress holds the session's rules of the network, its traffic, and what was last denied.
func (s *Session) Egress(ctx context.Context) (*Egress, error) {
	return perform[*Egress](ctx, s, egressOp{}, hold.Streams{})
}

// Allow adds rules to those of [SessionOptions.Allow], from now on and for as long as
// the session is kept. What was denied by the same text no longer is.
func (s *Session) Allow(ctx context.Context, rules ...string) (*Egress, error) {
	return perform[*Egress](ctx, s, egressRulesOp{Allow: rules}, hold.Streams{})
}

// Deny adds rules to those of [SessionOptions.Deny]. Connections that they deny are reset,
// and what was allowed by the same text no longer is.
func (s *Session) Deny(ctx context.Context, rules ...string) (*Egress, error) {
	return perform[*Egress](ctx, s, egressRulesOp{Deny: rules}, hold.Streams{})
}

// SetRules takes rules in place of those of [SessionOptions.Allow] and [SessionOptions.Deny].
// Connections that they don't allow are reset; without a rule that allows there is no network.
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

// checkEgress says which rule is wrong, and which part of it.
func (o *SessionOptions) checkEgress() error {
	if _, _, err := o.rules().Parse(); err != nil {
		return badRule(err)
	}
	for _, name := range o.rules().Secrets() {
		if _, ok := o.Secrets[name]; !ok {
			return tool.Errorf(tool.Invalid, "inject uses the secret %s, which the session doesn't have; give it with --secret %s=FILE", name, name).In("inject")
		}
	}
	return nil
}

func badRule(err error) error {
	field, _, _ := strings.Cut(err.Error(), " ")
	return tool.Errorf(tool.Invalid, "%s", err).In(field)
}

func (l *local) newDoor() (*door.Door, error) {
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

// egressRecord keeps, in the session's directory, what its traffic was and which rules it
// needed: its bounds are the session's, not its holder's.
const egressRecord = "egress.json"

// keptEgress is nothing where there is no record.
func keptEgress(dir *overlay.Dir) (kept door.Memory) {
	raw, err := os.ReadFile(filepath.Join(sessionPath(dir), egressRecord))
	if err == nil {
		_ = json.Unmarshal(raw, &kept) // it is replaced whole
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

// headerValue is a secret as a header has it: files end with a line break.
func (l *local) headerValue(name string) (string, error) {
	values, _ := l.secrets.Values()
	value, ok := values[name]
	if !ok {
		return "", errors.New("its value isn't there; give it again")
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

// sayDenied adds what the rules refused to the result of the call that ran programs.
// A profile's results have no field for it: there the text says so.
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

// closedEgress is of a session whose sandbox is not there.
func closedEgress(dir *overlay.Dir, o SessionOptions) Egress {
	before := keptEgress(dir)
	return Egress{Rules: o.rules().Shown(), Traffic: before.Traffic, Recorded: before.Recorded}
}

// shownEgress is nil where there is no rule, nor was one.
func shownEgress(v door.View) *Egress {
	if !v.Opens() && len(v.Deny) == 0 && !v.Serves && v.Traffic == (egress.Traffic{}) {
		return nil
	}
	v.Rules = v.Shown()
	return &v
}

// egressOp looks, and leaves no record.
type egressOp struct{}

func (o egressOp) event() Event { return Event{} }

func (o egressOp) do(ctx context.Context, l *local, _ journal.Call, _ hold.Streams) (any, journal.Outcome, error) {
	view, err := l.door.View(ctx)
	return &view, journal.Outcome{}, err
}

// byHolder starts no holder: where there is none, nothing can connect.
func (o egressOp) byHolder(ctx context.Context, h *held, c journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	answer, out, err := ask(ctx, h.looker, c, o, io)
	if !errors.Is(err, hold.ErrNoHolder) {
		return answer, out, err
	}
	state, err := h.dir.Reload()
	if err != nil {
		return nil, out, err
	}
	opts, err := settingsOf(state.Settings)
	view := closedEgress(h.dir, opts)
	return &view, out, err
}

// egressRulesOp changes the rules.
type egressRulesOp struct {
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Replace takes them in place of the others.
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
		return tool.Errorf(tool.Invalid, "allow has no rule; give one")
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

// Dial connects to a program of the session that listens on a TCP port of 127.0.0.1 (as
// those on 0.0.0.0 do) or ::1 in its sandbox. It needs no rule: nothing of the host can be
// reached that way, and nothing else on this machine can use the connection. ctx bounds
// the dialing, which ends after 5 s at the latest; then the connection stays until it is
// closed or the program ends. Where nothing listens it is not_found, and no sandbox is
// made for it. It leaves no record. The connection is a *net.TCPConn, but for a session
// that this process holds itself with gVisor or a Podman on another machine: it has
// CloseWrite() error then, and Reset() error for an end that must not look complete.
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

// handed is a connection on its way to a caller, who may have left.
type handed struct{ at atomic.Pointer[net.Conn] }

func (h *handed) give(conn net.Conn) error {
	if !h.at.CompareAndSwap(nil, &conn) {
		return conn.Close()
	}
	return nil
}

// take takes what was given; what is given later is closed.
func (h *handed) take() net.Conn {
	if conn := h.at.Swap(new(net.Conn)); conn != nil {
		return *conn
	}
	return nil
}

// AwaitEnd waits until the session ends under its caller: it is closed, removed, reset or
// over its time, or the process that holds it ends. It returns why, as a [*tool.Error],
// or ctx's end. Meanwhile a kept session's sandbox stays, with and without programs.
// watching, where it isn't nil, is called when no end goes unseen any more.
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

func (o dialOp) event() Event { return Event{} }

// dialTime bounds the making of a connection: a program may take none.
const dialTime = 5 * time.Second

func (o dialOp) do(ctx context.Context, l *local, _ journal.Call, io hold.Streams) (any, journal.Outcome, error) {
	if io.Conn == nil {
		return nil, journal.Outcome{}, tool.Errorf(tool.Invalid, "nobody takes the connection")
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

// explain says what a caller can do about a connection that didn't come about.
func (o dialOp) explain(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return tool.Errorf(tool.NotFound, "nothing listens on port %d of the session; start a server that listens there, on 127.0.0.1 or 0.0.0.0, with process_start or `wisbox exec --detach`", o.Port).In("port").Because(err)
	case errors.Is(err, context.DeadlineExceeded):
		return tool.Errorf(tool.Timeout, "the program on port %d of the session takes no connection; see whether it is busy or stopped", o.Port).In("port").Because(err)
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

// calls calls a function for whatever is written.
type calls func()

func (f calls) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// awaitEndOp lasts as long as the session, and leaves no record.
type awaitEndOp struct{}

func (o awaitEndOp) event() Event { return Event{} }

// do writes something when it has begun, and then waits.
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
