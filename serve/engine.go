package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/serve/e2b"
	"github.com/wisbox/wisbox/tool"
)

// longestEval is the longest time that a session lets code run.
const longestEval = 24 * time.Hour

// besideDisk is what the host keeps of a session at most, in bytes, beside its workspace and
// its snapshots: two logs of 32 MiB, and 256 MiB of what was cut from results.
const besideDisk = 320 << 20

// snapshotSpace is what a sandbox's snapshots may take: less than a session's own default,
// for it counts whether it is used or not.
func snapshotSpace(o *wisbox.SessionOptions) int64 {
	return cmp.Or(o.SnapshotSpace, max(o.Limits.WithDefaults().Disk, 16<<20))
}

// engine makes kept sessions of a Manager: they outlive the server.
type engine struct {
	m    *wisbox.Manager
	opts wisbox.SessionOptions // of each
}

// box is a session as a sandbox.
type box struct {
	*wisbox.Session
	engine *engine
	dir    string // where its programs begin; "" is their home
}

var (
	_ registry.Forker    = box{}
	_ registry.Pauser    = box{}
	_ registry.Gauger    = box{}
	_ registry.Networker = box{}
	_ registry.Readier   = box{}
)

// Gauge starts nothing, and is no use of the session.
func (b box) Gauge(ctx context.Context) (registry.Gauge, error) {
	u, err := b.Usage(ctx)
	if err != nil {
		return registry.Gauge{}, err
	}
	g := registry.Gauge{Running: u.Running && u.Gauge != nil, Disk: u.Disk}
	if u.Gauge != nil {
		g.CPU, g.Memory = u.Gauge.CPU, u.Gauge.Memory
	}
	return g, nil
}

// SetNetwork replaces the session's rules.
func (b box) SetNetwork(ctx context.Context, allow, deny []string) error {
	_, err := b.SetRules(ctx, allow, deny)
	return err
}

// Network are the session's rules.
func (b box) Network(ctx context.Context) (allow, deny []string, err error) {
	e, err := b.Egress(ctx)
	if err != nil {
		return nil, nil, err
	}
	return e.Allow, e.Deny, nil
}

// Resume has the session go on.
func (b box) Resume(ctx context.Context) error {
	_, err := b.Session.Resume(ctx)
	return err
}

// options are those of every sandbox.
func (e *engine) options() wisbox.SessionOptions {
	o := e.opts
	o.Kept, o.UserHome = true, true
	o.SnapshotSpace = snapshotSpace(&o)
	o.MaxEvalTimeout, o.MaxCode = longestEval, tool.MaxArguments // a notebook's client ends what it runs
	return o
}

func (e *engine) Create(ctx context.Context, r registry.Record) (registry.Box, error) {
	o := e.options()
	o.Name = r.ID
	o.Allow, o.Deny = r.Allow, r.Deny
	if wisbox.IsTemplateID(r.Template) { // with the image that its files were made with
		o.Template, o.Image = r.Template, ""
	}
	s, err := e.m.Open(ctx, &o)
	if err != nil {
		return nil, err
	}
	if err := begin(ctx, s); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx))) // the registry removes it
	}
	return e.started(ctx, s, r.Env)
}

// Ready is for a session that nobody used for long.
func (b box) Ready(ctx context.Context) error { return begin(ctx, b.Session) }

// isPlain reports whether a sandbox is as those that are kept ready, but for its network.
func isPlain(r registry.Record) bool { return !wisbox.IsTemplateID(r.Template) }

// begin makes the session's container: a client that has a sandbox has a running one.
func begin(ctx context.Context, s *wisbox.Session) error {
	res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"/bin/true"}, Stdout: io.Discard, Stderr: io.Discard})
	if err == nil && res.ExitCode != 0 {
		err = tool.Errorf(tool.Unavailable, "the sandbox's image has no /bin/true that runs; take another image")
	}
	return err
}

func (e *engine) Open(ctx context.Context, id string) (registry.Box, error) {
	s, err := e.m.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	program, err := e.m.ProgramOf(ctx, s.Options().Image)
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return box{s, e, program.Dir}, nil
}

func (e *engine) Remove(ctx context.Context, id string) error {
	err := e.m.Remove(ctx, id)
	if tool.KindOf(err) == tool.NotFound {
		return nil
	}
	return err
}

func (e *engine) IDs(ctx context.Context) ([]string, error) {
	all, err := e.m.List(ctx)
	ids := make([]string, 0, len(all))
	for _, entry := range all {
		ids = append(ids, entry.ID)
	}
	return ids, err
}

// Fork makes a session that begins with the files of this one. No program runs in it
// before it has its own rules of the network.
func (b box) Fork(ctx context.Context, r registry.Record) (registry.Box, error) {
	s, err := b.Clone(ctx, &wisbox.CloneOptions{Name: r.ID, Kept: true})
	if err != nil {
		return nil, err
	}
	_, err = s.SetRules(ctx, r.Allow, r.Deny)
	if err == nil {
		err = begin(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return b.engine.started(ctx, s, r.Env)
}

// kept are the templates of a Manager, which snapshots of sandboxes become.
type kept struct{ m *wisbox.Manager }

var _ e2b.Templates = kept{}

func (k kept) List() ([]wisbox.Template, error) { return k.m.Templates() }

func (k kept) Find(ref, owner string) (wisbox.Template, error) { return k.m.FindTemplate(ref, owner) }

func (k kept) Create(ctx context.Context, b registry.Box, name, owner string) (wisbox.Template, error) {
	return b.(box).CreateTemplate(ctx, &wisbox.TemplateOptions{Name: name, Owner: owner})
}

// disk is what those of all owners take. One that can't be read keeps nobody out: the list
// of its owner's snapshots has the error in the log.
func (k kept) disk() (sum int64, _ error) {
	all, _ := k.m.Templates()
	for _, t := range all {
		if t.Owner != "" { // the others are the host's own
			sum += t.Disk
		}
	}
	return sum, nil
}

func (k kept) Remove(ctx context.Context, id string) error { return k.m.RemoveTemplate(ctx, id) }
