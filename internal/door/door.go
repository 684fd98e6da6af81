// Package door connects a session to the network. If there is a rule, it starts the egress proxy of
// a sandbox with the first program, closes it with the sandbox, and provides the environment
// variables by which programs find it. Without a rule it does nothing. Package egress decides which
// hosts may be reached.
package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Options are options of [New]; zero fields work.
type Options struct {
	// Session is the session's name for the command in denials; "" makes denials name the flag
	// instead.
	Session string
	Rules   Rules
	// Secret returns the value of a secret that an injection uses.
	Secret func(name string) (string, error)
	// Journal gets an [egress.Line] for each connection and denial.
	Journal egress.Journal
	// Own are the session's own variables for programs, which take precedence.
	Own map[string]string
	// Before is the Memory of the last call of Keep. Keep is called after each connection, by one
	// goroutine at a time; nil keeps nothing.
	Before Memory
	Keep   func(Memory)
	Log    *slog.Logger
}

// Memory is the state of a session's door that another process needs.
type Memory struct {
	Traffic  egress.Traffic `json:"traffic"`
	Recorded []string       `json:"recorded,omitempty"`
}

// Door belongs to one session. Its methods may be called from many goroutines at once.
type Door struct {
	opts     Options
	recorder *policy.Recorder
	env      atomic.Pointer[[]string]

	calling sync.Mutex
	calls   []string // running

	mu     *lock.Mutex // guards the fields below; never held while a lock of a caller is taken
	rules  Rules
	policy *policy.Policy
	via    *url.URL
	proxy  *egress.Proxy // nil if none serves
	at     sandbox.Sandbox
	early  sandbox.Sandbox // one that was made before there was a rule
	places egress.Places
	given  []byte // the certificates that programs have
	before egress.Traffic
	former []egress.Denial // of closed proxies
}

// New returns a closed Door.
func New(opts *Options) (*Door, error) {
	d := &Door{opts: *opts, recorder: &policy.Recorder{}, mu: lock.New(), rules: opts.Rules, before: opts.Before.Traffic}
	d.recorder.Add(opts.Before.Recorded)
	if d.opts.Log == nil {
		d.opts.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	d.policy, d.via, err = d.rules.Parse()
	return d, err
}

// Opens reports whether there is a rule to allow. The nil Door is closed.
func (d *Door) Opens(ctx context.Context) bool {
	if d == nil {
		return false
	}
	if d.mu.Lock(ctx) != nil {
		return true
	}
	defer d.mu.Unlock()
	return d.rules.Opens()
}

// Prepare opens the door of a sandbox before its first program. It may be called again. The error
// wraps [sandbox.ErrUnsupported] if the sandbox's network can't be used.
func (d *Door) Prepare(ctx context.Context, sb sandbox.Sandbox) error {
	if err := d.mu.Lock(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.policy.Empty() {
		d.early = sb
		return nil
	}
	if d.proxy != nil && d.at == sb {
		return nil
	}
	d.leave()
	if err := d.open(ctx, sb); err != nil {
		d.leave()
		return fmt.Errorf("the session's rules for the network can't be kept: %w", err)
	}
	return nil
}

// open starts a proxy in a sandbox. The caller must hold mu.
func (d *Door) open(ctx context.Context, sb sandbox.Sandbox) error {
	networker, ok := sandbox.As[sandbox.Networker](sb)
	if !ok {
		return fmt.Errorf("%w: this backend's sandboxes have no network of their own", sandbox.ErrUnsupported)
	}
	journal := &remembering{d: d}
	proxy, err := egress.New(&egress.Options{
		Policy: d.policy, Session: d.opts.Session, Secret: d.opts.Secret, Via: d.via, Journal: journal,
		Calls: d.inFlight, Recorder: d.recorder, Before: d.before, Bounds: egress.Bounds{Out: d.rules.Out},
	})
	if err != nil {
		return err
	}
	d.proxy, d.at = proxy, sb
	journal.proxy.Store(proxy)
	if d.places, err = proxy.Start(ctx, network{networker}); err != nil {
		return err
	}
	if d.places.Problem != nil {
		d.opts.Log.Info("programs without proxy support have no network", "cause", d.places.Problem)
	}
	return d.equip(ctx)
}

func (d *Door) keep(t egress.Traffic) {
	if d.opts.Keep != nil {
		d.opts.Keep(Memory{t, d.recorder.Rules()})
	}
}

// remembering is a proxy's journal that also keeps the door's Memory.
type remembering struct {
	d     *Door
	proxy atomic.Pointer[egress.Proxy]
}

// Append implements [egress.Journal].
func (r *remembering) Append(record any) error {
	if r.d.opts.Journal == nil {
		return nil
	}
	err := r.d.opts.Journal.Append(record)
	if line, ok := record.(egress.Line); ok && line.Event == "close" {
		r.d.keep(r.proxy.Load().Traffic())
	}
	return err
}

// equip provides the certificates and the variables for programs. The caller must hold mu.
func (d *Door) equip(ctx context.Context) error {
	path, err := d.giveRoots(ctx)
	if err != nil {
		return err
	}
	vars := egress.Variables(d.places.Proxy, path, d.policy)
	if path != "" {
		for _, f := range egress.SettingsFiles(path) {
			vars[f.Variable] = sandbox.SecretsDir + "/" + f.Name
		}
	}
	var env []string
	for name, value := range vars {
		if _, own := d.opts.Own[name]; !own && value != "" {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	d.env.Store(&env)
	return nil
}

// Env returns the variables of every program, before its own.
func (d *Door) Env() []string {
	if env := d.env.Load(); env != nil {
		return *env
	}
	return nil
}

// Left closes the door of a sandbox that is given up.
func (d *Door) Left(sb sandbox.Sandbox) {
	_ = d.mu.Lock(context.Background())
	defer d.mu.Unlock()
	if d.at == sb {
		d.leave()
	}
	if d.early == sb {
		d.early = nil
	}
}

// leave closes the proxy and resets its connections. The caller must hold mu.
func (d *Door) leave() {
	d.env.Store(nil)
	if d.proxy == nil {
		return
	}
	_ = d.proxy.Close() // Close returns nil
	last, _ := d.proxy.Denied(0)
	d.before, d.former = d.proxy.Traffic(), latest(d.former, last)
	d.keep(d.before)
	d.proxy, d.at, d.places, d.given = nil, nil, egress.Places{}, nil
}

// Change adds rules after save has stored them. After an error the old rules stay. Connections that
// the new rules don't allow are reset.
func (d *Door) Change(ctx context.Context, allow, deny []string, save func(Rules) error) error {
	return d.change(ctx, func(old Rules) Rules { return old.With(allow, deny) }, save)
}

// Replace is like Change, but replaces the current rules.
func (d *Door) Replace(ctx context.Context, allow, deny []string, save func(Rules) error) error {
	return d.change(ctx, func(old Rules) Rules {
		old.Allow, old.Deny = nil, nil
		return old.With(allow, deny)
	}, save)
}

func (d *Door) change(ctx context.Context, edit func(Rules) Rules, save func(Rules) error) error {
	if err := d.mu.Lock(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	next := edit(d.rules)
	parsed, _, err := next.Parse()
	if err != nil {
		return err
	}
	if err := save(next); err != nil {
		return err
	}
	d.rules, d.policy = next, parsed
	switch {
	case d.proxy == nil:
		return nil
	case parsed.Empty():
		d.leave()
		return nil
	}
	if err := d.proxy.SetPolicy(parsed); err != nil {
		d.leave() // no proxy is better than one with the old rules
		return err
	}
	return d.equip(ctx)
}

// Begin records a running call for the journal until the returned function is called.
func (d *Door) Begin(call string) (end func()) {
	d.calling.Lock()
	d.calls = append(d.calls, call)
	d.calling.Unlock()
	return func() {
		d.calling.Lock()
		defer d.calling.Unlock()
		if i := slices.Index(d.calls, call); i >= 0 {
			d.calls = slices.Delete(d.calls, i, i+1)
		}
	}
}

func (d *Door) inFlight() []string {
	d.calling.Lock()
	defer d.calling.Unlock()
	return slices.Clone(d.calls)
}

// Mark is a position among the denials.
type Mark struct {
	proxy *egress.Proxy
	n     int64
}

// Mark returns the current position.
func (d *Door) Mark() Mark {
	_ = d.mu.Lock(context.Background())
	defer d.mu.Unlock()
	if d.proxy == nil {
		return Mark{}
	}
	_, n := d.proxy.Denied(0)
	return Mark{d.proxy, n}
}

// DeniedSince returns the last five denials after a mark, in the words for programs.
func (d *Door) DeniedSince(m Mark) (texts []string) {
	_ = d.mu.Lock(context.Background())
	defer d.mu.Unlock()
	if d.proxy == nil {
		return nil
	}
	if m.proxy != d.proxy {
		m.n = 0
	}
	last, _ := d.proxy.Denied(m.n)
	for _, one := range last {
		texts = append(texts, one.String())
	}
	return texts
}

// View is the current state of a session's door.
type View struct {
	Rules
	// Serves reports whether running programs can connect now.
	Serves bool `json:"serves"`
	// Transparent reports whether programs without proxy support can connect, too. If not, Problem
	// has the reason.
	Transparent bool            `json:"transparent"`
	Problem     string          `json:"problem,omitempty"`
	Traffic     egress.Traffic  `json:"traffic"`
	Denied      []egress.Denial `json:"denied,omitempty"`   // the last five
	Recorded    []string        `json:"recorded,omitempty"` // the rules that allow the recorded connections
}

// View returns the current state.
func (d *Door) View(ctx context.Context) (View, error) {
	if err := d.mu.Lock(ctx); err != nil {
		return View{}, err
	}
	defer d.mu.Unlock()
	v := View{Rules: d.rules.Shown(), Traffic: d.before, Denied: d.former, Recorded: d.recorder.Rules()}
	if d.proxy == nil {
		return v, nil
	}
	last, _ := d.proxy.Denied(0)
	v.Serves, v.Transparent, v.Traffic, v.Denied = true, d.places.Transparent, d.proxy.Traffic(), latest(d.former, last)
	if d.places.Problem != nil {
		v.Problem = d.problem()
	}
	return v, nil
}

// problem says why programs without proxy support have no network, and what to do. The caller must hold mu.
func (d *Door) problem() string {
	const what = "programs without proxy support have no network: "
	switch {
	case !errors.Is(d.places.Problem, sandbox.ErrUnavailable):
		return what + "no DNS can be served in the sandbox; wisbox doctor checks the machine"
	case d.early == d.at:
		return what + "the container was made before the first rule; `wisbox stop " + cmp.Or(d.opts.Session, "SESSION") +
			"` ends it and its programs, and the next command gets one that serves them"
	}
	return what + "this host gives sandboxes no port 53; wisbox doctor says what is missing"
}

const keptDenials = 5

func latest(former, last []egress.Denial) []egress.Denial {
	all := slices.Concat(former, last)
	return all[max(0, len(all)-keptDenials):]
}

// prepareTimeout bounds the reading of the image's certificates.
var prepareTimeout = patience.For(10 * time.Second)
