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

// longestEval is the maximum duration of an evaluation.
const longestEval = 24 * time.Hour

// besideDisk is the maximum of bytes that the host keeps for a session besides its workspace and
// its snapshots: two logs of 32 MiB, 256 MiB of output cut from results, and 16 MiB of displays of
// evaluations.
const besideDisk = 336 << 20

// snapshotSpace returns the maximum of bytes for a sandbox's snapshots. It is smaller than a
// session's own default, since it counts even if it isn't used.
func snapshotSpace(o *wisbox.SessionOptions) int64 {
	return cmp.Or(o.SnapshotSpace, max(o.Limits.WithDefaults().Disk, 16<<20))
}

// engine creates kept sessions of a Manager. They outlive the server.
type engine struct {
	m    *wisbox.Manager
	opts wisbox.SessionOptions // of each
}

// common is a session as a sandbox, wherever it is.
type common struct {
	*wisbox.Session
	dir string // the directory of its programs; "" is their home
}

// box is a session of this machine.
type box struct {
	common
	engine *engine
}

// commonOf returns the common part of a box of either kind.
func commonOf(b registry.Box) common {
	if here, ok := b.(box); ok {
		return here.common
	}
	return b.(common)
}

var (
	_ registry.Forker    = box{}
	_ registry.Pauser    = box{}
	_ registry.Restarter = box{}
	_ registry.Gauger    = common{}
	_ registry.Networker = box{}
	_ registry.Readier   = common{}
)

// Gauge doesn't start the session, and doesn't count as a use of it.
func (b common) Gauge(ctx context.Context) (registry.Gauge, error) {
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

// Network returns the session's rules.
func (b box) Network(ctx context.Context) (allow, deny []string, err error) {
	e, err := b.Egress(ctx)
	if err != nil {
		return nil, nil, err
	}
	return e.Allow, e.Deny, nil
}

// Resume resumes the session.
func (b box) Resume(ctx context.Context) error {
	_, err := b.Session.Resume(ctx)
	return err
}

// Halt ends the session's container.
func (b box) Halt(ctx context.Context) error { return b.engine.m.Stop(ctx, b.ID()) }

// Restart starts a halted or paused session. It first halts the session again, since a killed server may have halted it
// only in part.
func (b box) Restart(ctx context.Context, env map[string]string) error {
	for _, step := range []func(context.Context) error{b.Halt, b.ResumeFromFiles, b.Ready} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	program, err := b.engine.m.ProgramOf(ctx, b.Options().Image)
	if err != nil {
		return err
	}
	return start(ctx, b.Session, program, env, nil)
}

// options returns the options of every sandbox.
func (e *engine) options() wisbox.SessionOptions {
	o := e.opts
	o.Kept, o.UserHome = true, true
	o.SnapshotSpace = snapshotSpace(&o)
	o.MaxEvalTimeout, o.MaxCode = longestEval, tool.MaxArguments // clients of notebooks end evaluations themselves
	return o
}

func (e *engine) Create(ctx context.Context, r registry.Record) (registry.Box, error) {
	o := e.options()
	o.Name = r.ID
	o.Allow, o.Deny = r.Allow, r.Deny
	if wisbox.IsTemplateID(r.Template) { // with the image of the template's files
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

// Ready makes sure that the session has a container, even after a long idle time.
func (b common) Ready(ctx context.Context) error { return begin(ctx, b.Session) }

// isPlain reports whether a sandbox that is kept ready could serve as this one, apart from the network.
func isPlain(r registry.Record) bool { return !wisbox.IsTemplateID(r.Template) }

// begin creates the session's container, so that a client's sandbox always runs.
func begin(ctx context.Context, s *wisbox.Session) error {
	res, err := s.Run(ctx, sandbox.Cmd{Argv: []string{"/bin/true"}, Stdout: io.Discard, Stderr: io.Discard})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil: // it was killed
		return ctx.Err()
	case res.ExitCode != 0:
		return tool.Errorf(tool.Unavailable, "the sandbox's image has no working /bin/true; use another image")
	}
	return nil
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
	return box{common{s, program.Dir}, e}, nil
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

// Fork creates a session that begins with the files of this one. No program runs in it before it
// has its own network rules.
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

// kept stores snapshots of sandboxes as templates of a Manager.
type kept struct{ m *wisbox.Manager }

var _ e2b.Templates = kept{}

func (k kept) List() ([]wisbox.Template, error) { return k.m.Templates() }

func (k kept) Find(ref, owner string) (wisbox.Template, error) { return k.m.FindTemplate(ref, owner) }

func (k kept) Create(ctx context.Context, b registry.Box, name, owner string) (wisbox.Template, error) {
	return b.(box).CreateTemplate(ctx, &wisbox.TemplateOptions{Name: name, Owner: owner})
}

// disk returns the bytes of the templates of all owners. It leaves out those that it can't read;
// the list of the owner's snapshots logs the error.
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
