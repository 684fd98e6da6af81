// Package door is a session's way to the network: the egress proxy of its sandbox,
// started with the first program where a rule stands, closed with the sandbox, and
// what programs need in their environment to find it. Without a rule it does nothing.
// What may be reached is package egress' to decide.
package door

import (
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
	"github.com/wisbox/wisbox/sandbox"
)

// Options are what a Door is made with; zero fields work.
type Options struct {
	// Session is named by denials that a command can allow; "" names the flag.
	Session string
	Rules   Rules
	// Secret gives the value of a secret that an injection uses.
	Secret func(name string) (string, error)
	// Journal gets an [egress.Line] for each connection and denial.
	Journal egress.Journal
	// Own are the variables that the session gives its programs: they win.
	Own map[string]string
	// Before is what Keep kept last. Keep is called after each connection, by one goroutine
	// at a time; nil keeps nothing.
	Before Memory
	Keep   func(Memory)
	Log    *slog.Logger
}

// Memory is what a session's door must know again in another process.
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
	calls   []string // in flight

	mu     *lock.Mutex // guards what follows; never held while a lock of a caller is taken
	rules  Rules
	policy *policy.Policy
	via    *url.URL
	proxy  *egress.Proxy // nil where none serves
	at     sandbox.Sandbox
	places egress.Places
	given  []byte // the certificates that programs have
	before egress.Traffic
	former []egress.Denial // of proxies that are closed
}

// New makes a Door that is closed yet.
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

// Opens reports whether a rule stands. The nil Door is closed.
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

// Prepare opens the door of a sandbox before its first program. It may be called
// again. It wraps [sandbox.ErrUnsupported] where the sandbox's network can't be used.
func (d *Door) Prepare(ctx context.Context, sb sandbox.Sandbox) error {
	if err := d.mu.Lock(ctx); err != nil {
		return err
	}
	defer d.mu.Unlock()
	if d.policy.Empty() || d.proxy != nil && d.at == sb {
		return nil
	}
	d.leave()
	if err := d.open(ctx, sb); err != nil {
		d.leave()
		return fmt.Errorf("the session's rules for the network can't be kept: %w", err)
	}
	return nil
}

// open starts a proxy in a sandbox. mu is held.
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
		d.opts.Log.Info("programs that know no proxy have no network", "cause", d.places.Problem)
	}
	return d.equip(ctx)
}

func (d *Door) keep(t egress.Traffic) {
	if d.opts.Keep != nil {
		d.opts.Keep(Memory{t, d.recorder.Rules()})
	}
}

// remembering is a proxy's journal that keeps what it must know again.
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

// equip gives programs the certificates and the variables. mu is held.
func (d *Door) equip(ctx context.Context) error {
	path, err := d.giveRoots(ctx)
	if err != nil {
		return err
	}
	var env []string
	for name, value := range egress.Variables(d.places.Proxy, path, d.policy) {
		if _, own := d.opts.Own[name]; !own && value != "" {
			env = append(env, name+"="+value)
		}
	}
	slices.Sort(env)
	d.env.Store(&env)
	return nil
}

// Env is what every program gets, before its own variables.
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
}

// leave closes the proxy: its connections are reset. mu is held.
func (d *Door) leave() {
	d.env.Store(nil)
	if d.proxy == nil {
		return
	}
	_ = d.proxy.Close() // it returns nil
	last, _ := d.proxy.Denied(0)
	d.before, d.former = d.proxy.Traffic(), latest(d.former, last)
	d.keep(d.before)
	d.proxy, d.at, d.places, d.given = nil, nil, egress.Places{}, nil
}

// Change adds rules, once save has kept them. On an error the old ones stay.
// Connections that the new ones don't allow are reset.
func (d *Door) Change(ctx context.Context, allow, deny []string, save func(Rules) error) error {
	return d.change(ctx, func(old Rules) Rules { return old.With(allow, deny) }, save)
}

// Replace is Change that takes these rules in place of those allowed and denied so far.
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
		d.leave() // rather none than the old ones
		return err
	}
	return d.equip(ctx)
}

// Begin notes a call in flight, for the journal; the function it returns ends that.
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

// Mark is a moment among the denials.
type Mark struct {
	proxy *egress.Proxy
	n     int64
}

// Mark is now.
func (d *Door) Mark() Mark {
	_ = d.mu.Lock(context.Background())
	defer d.mu.Unlock()
	if d.proxy == nil {
		return Mark{}
	}
	_, n := d.proxy.Denied(0)
	return Mark{d.proxy, n}
}

// DeniedSince says what was denied after a mark: the last five, as programs read it.
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

// View is what a session's door is now.
type View struct {
	Rules
	// Serves reports whether programs that run can connect now.
	Serves bool `json:"serves"`
	// Transparent reports whether programs that know no proxy can, too; Problem is why not.
	Transparent bool            `json:"transparent"`
	Problem     string          `json:"problem,omitempty"`
	Traffic     egress.Traffic  `json:"traffic"`
	Denied      []egress.Denial `json:"denied,omitempty"`   // the last five
	Recorded    []string        `json:"recorded,omitempty"` // the rules that allow what was connected to
}

// View looks.
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
		v.Problem = "programs that know no proxy have no network: the sandbox was made before the first rule, or its host has no port 53 for it; " +
			"its next container serves them"
		if !errors.Is(d.places.Problem, sandbox.ErrUnavailable) {
			v.Problem = "programs that know no proxy have no network"
		}
	}
	return v, nil
}

const keptDenials = 5

func latest(former, last []egress.Denial) []egress.Denial {
	all := slices.Concat(former, last)
	return all[max(0, len(all)-keptDenials):]
}

// prepareTimeout bounds a look at the image's certificates.
const prepareTimeout = 10 * time.Second
