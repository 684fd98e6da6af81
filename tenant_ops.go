package wisbox

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/templates"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// tenantSpec limits an operation for tenants.
type tenantSpec struct {
	args  []string                                                                               // all others are refused
	check func(g *guest, op operation) error                                                     // of their values, which it may change; may be nil
	hide  func(answer *hold.Answer, id, name string) error                                       // removes details of this machine; may be nil
	place func(ctx context.Context, g *guest, raw json.RawMessage, io hold.Streams) (any, error) // performs an operation without a running session
}

func withArgs(names string) *tenantSpec { return &tenantSpec{args: strings.Fields(names)} }

// checked is withArgs with a check for operations of type O.
func checked[O any](names string, check func(g *guest, o *O) error) *tenantSpec {
	return &tenantSpec{args: strings.Fields(names), check: func(g *guest, op operation) error {
		o, ok := any(op).(*O)
		if !ok {
			return tool.Errorf(tool.Internal, "an operation has another type than its check")
		}
		return check(g, o)
	}}
}

// hiding makes hide change the answer, of type A, before a tenant gets it.
func hiding[A any](t *tenantSpec, hide func(a *A, id, name string)) *tenantSpec {
	t.hide = func(answer *hold.Answer, id, name string) (err error) {
		var a A
		if err := json.Unmarshal(answer.Value, &a); err != nil {
			return err
		}
		hide(&a, id, name)
		answer.Value, err = json.Marshal(a)
		return err
	}
	return t
}

// placed is withArgs for an operation without a running session.
func placed[A any](names string, do func(g *guest, ctx context.Context, a A, io hold.Streams) (any, error)) *tenantSpec {
	return &tenantSpec{args: strings.Fields(names), place: func(ctx context.Context, g *guest, raw json.RawMessage, io hold.Streams) (any, error) {
		var a A
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, tool.Errorf(tool.Invalid, "the arguments can't be read").Because(err)
		}
		return do(g, ctx, a, io)
	}}
}

// names rejects unlisted arguments.
func (o *tenantSpec) names(op string, raw json.RawMessage) error {
	err := members(raw, o.args, func(name string, _ int, listed bool) error {
		if !listed {
			return errNotOffered("the argument " + clip.Text(name) + " of " + op)
		}
		return nil
	})
	if errors.Is(err, errMalformed) {
		return errUnreadable(op, err)
	}
	return err
}

var errMalformed = errors.New("not a JSON object")

// members calls each for every member of a JSON object, without copying them all; listed reports whether
// names contains the member. A repeated listed member is invalid, since two readers could each take a
// different value. Unlisted members with the value null are skipped.
func members(raw json.RawMessage, names []string, each func(name string, size int, listed bool) error) error {
	in := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := in.Token(); err != nil || begin != nil && begin != json.Delim('{') {
		return errors.Join(errMalformed, err)
	} else if begin == nil {
		return nil // null has no members
	}
	seen := map[string]bool{}
	var value json.RawMessage
	for in.More() {
		token, err := in.Token()
		name, ok := token.(string)
		if err != nil || !ok || in.Decode(&value) != nil {
			return errMalformed
		}
		listed := slices.Contains(names, name)
		switch {
		case !listed && string(value) == "null":
			continue
		case seen[name]:
			return tool.Errorf(tool.Invalid, "%s comes twice; give it once", name).In(name)
		case listed:
			seen[name] = true
		}
		if err := each(name, len(value), listed); err != nil {
			return err
		}
	}
	return nil
}

// ordinary rejects programs that sessions start for their own use.
func (p program) ordinary() error {
	if p.Lifetime != sandbox.LifetimeCall && p.Lifetime != sandbox.LifetimeSelf {
		return errNotOffered("this lifetime of a program")
	}
	return nil
}

// valuesAlone rejects files, which would be files of this machine.
func valuesAlone(_ *guest, o *secretsOp) error {
	for name, s := range o.Secrets {
		if s.File != "" || s.Value == nil {
			return tool.Errorf(tool.Invalid, "secret %s has no value", clip.Text(name)).In("secrets")
		}
	}
	return box.CheckSecrets(o.Secrets)
}

func (g *guest) ownTemplate(o *templateOp) error {
	o.Owner, o.Built = g.tenant().Owner(), nil
	return nil
}

// checkRules accepts names of public hosts on their default ports. Other rules could reach this machine or
// its networks, or use a proxy.
func (g *guest) checkRules(allow []string) error {
	if len(allow) > 0 && !g.opts.Internet {
		return tool.Errorf(tool.Unsupported, "this server opens no network; leave allow out, or ask its operator to start it with --allow-internet").In("allow")
	}
	for _, rule := range allow {
		if rule == "public" || slices.Contains(policy.PresetNames(), rule) {
			continue
		}
		name, _, _ := strings.Cut(rule, "/")
		if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(rule, ".") || strings.Contains(rule, ":") {
			return tool.Errorf(tool.Unsupported, "allow has %q; behind an API key a rule is a name such as example.com or *.example.com, a preset, or public", clip.Text(rule)).In("allow")
		}
		if _, err := policy.Parse(policy.Settings{Allow: []string{rule}}); err != nil {
			return badRule(err)
		}
	}
	return nil
}

// networked hides how this machine reaches the network.
func networked(e *Egress, _, _ string) { e.Via = "" }

// inspected keeps the fields that a tenant may see.
func inspected(all *Inspection, id, name string) {
	in := *all
	for i, gap := range in.Gaps {
		in.Gaps[i] = strings.ReplaceAll(gap, id, name)
	}
	out := Inspection{
		ID: name, Kept: in.Kept, State: in.State, Created: in.Created, Image: in.Image, Profile: in.Profile,
		Mounts: in.Mounts, Env: in.Env, Secrets: in.Secrets, Paths: in.Paths, AutoSnapshot: in.AutoSnapshot,
		TTL: in.TTL, Idle: in.Idle, Paused: in.Paused, Limits: in.Limits, Snapshots: in.Snapshots, Gaps: in.Gaps,
	}
	if in.Egress != nil {
		view := *in.Egress
		networked(&view, id, name)
		out.Egress = &view
	}
	if b := in.Sandbox; b != nil {
		out.Sandbox = &sandbox.Info{ID: name, State: b.State, Image: b.Image, Runtime: b.Runtime, Created: b.Created, Limits: b.Limits, Lacks: b.Lacks, Gaps: b.Gaps}
	}
	*all = out
}

// place does an operation without a running session.
func (g *guest) place(ctx context.Context, req hold.Request, io hold.Streams) (_ *hold.Answer, err error) {
	about := struct{ Name string }{}
	_ = json.Unmarshal(req.Args, &about)
	id, _ := g.idOf(about.Name)
	s := specByName[req.Op]
	if s != nil && s.place == nil {
		s = nil
	}
	done, err := g.admit(ctx, s, id)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	defer g.survive(&err)
	if err := g.mayAsk(s, req); err != nil {
		return nil, err
	}
	if err := s.streams(io); err != nil {
		return nil, err
	}
	answer, err := s.tenants.place(ctx, g, req.Args, io)
	if err != nil {
		return nil, g.told(err, id, about.Name)
	}
	raw, err := json.Marshal(answer)
	return &hold.Answer{Value: raw}, err
}

// idOf returns the ID of a session without marking it as used.
func (g *guest) idOf(name string) (id string, ok bool) {
	for id, called := range g.tenant().Names() {
		if called == name {
			return id, true
		}
	}
	return "", false
}

// made creates sessions for a tenant's client, and chooses missing names.
func (g *guest) made(ctx context.Context, names []string, o *SessionOptions, open func(ctx context.Context, ids []string) ([]*Session, error)) ([]farSession, error) {
	for i, name := range names {
		if name == "" {
			names[i] = strings.ToLower(ulid.Make().String())
		} else if !sessionName().MatchString(name) {
			return nil, tool.Errorf(tool.Invalid, "name %q must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen", clip.Text(name)).In("name")
		}
	}
	out := make([]farSession, len(names))
	var secret []string
	err := g.tenant().Create(ctx, names, o, func(ctx context.Context, ids []string) error {
		secret = ids
		all, err := open(ctx, ids)
		for i, s := range all {
			out[i] = g.describe(s, names[i])
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
		return err
	})
	for i, id := range secret {
		err = g.told(err, id, names[i])
	}
	return out, err
}

// describe returns a session with the settings that a tenant may see.
func (g *guest) describe(s *Session, name string) farSession {
	return farSession{Options: farOptions{SessionOptions: chosen(s.opts), Name: name}, Created: s.at.created()}
}

// open creates a session. Its mounts come as one tar stream.
func (g *guest) open(ctx context.Context, a struct{ Options json.RawMessage }, io hold.Streams) (any, error) {
	o, err := g.options(a.Options)
	if err != nil {
		return nil, err
	}
	if len(o.Mounts) > 0 {
		if o.packed = io.Stdin; o.packed == nil { // without a stream, Open would read the mounts here
			return nil, errNoInput
		}
	}
	name := o.Name
	made, err := g.made(ctx, []string{name}, o, func(ctx context.Context, ids []string) ([]*Session, error) {
		o.Name = ids[0]
		s, err := g.m.Open(ctx, o)
		return some(s), err
	})
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

func some(s *Session) []*Session {
	if s == nil {
		return nil
	}
	return []*Session{s}
}

// load creates a session from an archive, with the settings of a new session: whoever wrote the archive
// chose its settings.
func (g *guest) load(ctx context.Context, a struct {
	Options      json.RawMessage
	Name         string
	WithSettings bool
}, io hold.Streams) (any, error) {
	if a.WithSettings {
		return nil, errNotOffered("the use of an archive's own settings (--with-settings)")
	}
	if a.Options == nil {
		a.Options = []byte("{}")
	}
	o, err := g.options(a.Options)
	if err != nil {
		return nil, err
	}
	if len(o.Mounts) > 0 || o.Template != "" {
		return nil, tool.Errorf(tool.Unsupported, "an archive can't be combined with mounts or a template; load it, then copy files in with wisbox cp")
	}
	var left []string
	name := cmp.Or(o.Name, a.Name)
	made, err := g.made(ctx, []string{name}, o, func(ctx context.Context, ids []string) ([]*Session, error) {
		o.Name = ids[0]
		s, err := g.m.Load(ctx, io.Stdin, &LoadOptions{Settings: o, Kept: true, OnLeftOut: func(names []string) { left = names }})
		return some(s), err
	})
	if err != nil {
		return nil, err
	}
	made[0].Left = left
	return made[0], nil
}

func (g *guest) fork(ctx context.Context, a forkArgs, _ hold.Streams) (any, error) {
	if a.N < 1 || a.N > maxForks {
		return nil, tool.Errorf(tool.Invalid, "n is %d; it must be 1 to %d", a.N, maxForks).In("n")
	}
	if err := g.within("idle", a.Idle); err != nil {
		return nil, err
	}
	id, err := g.find(a.Name)
	if err != nil {
		return nil, err
	}
	s, err := g.m.Attach(ctx, id)
	if err != nil {
		return nil, err
	}
	defer s.Close(context.WithoutCancel(ctx))
	names := make([]string, a.N)
	for i := range names {
		names[i] = cloneName(a.To, i, a.N)
	}
	o := s.Options()
	if len(o.Allow) > 0 && !g.opts.Internet { // the server may have been restarted since
		return nil, tool.Errorf(tool.Unsupported, "this server opens no network any more; close the session's network with wisbox deny, then clone it")
	}
	made, err := g.made(ctx, names, &o, func(ctx context.Context, ids []string) ([]*Session, error) {
		return s.fork(ctx, len(ids), CloneOptions{names: ids, Kept: true, idle: a.Idle})
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// of calls do with the named session of the tenant.
func (g *guest) of(ctx context.Context, name string, do func(s *Session) (any, error)) (any, error) {
	id, err := g.find(name)
	if err != nil {
		return nil, err
	}
	s, err := g.session(ctx, id)
	if err != nil {
		return nil, err
	}
	answer, err := do(s)
	return answer, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}

func (g *guest) attach(ctx context.Context, a named1, _ hold.Streams) (any, error) {
	return g.of(ctx, a.Name, func(s *Session) (any, error) { return g.describe(s, a.Name), nil })
}

func (g *guest) touch(ctx context.Context, a named1, _ hold.Streams) (any, error) {
	return g.of(ctx, a.Name, func(s *Session) (any, error) { return nothing{}, s.at.renew(ctx) })
}

func (g *guest) fill(ctx context.Context, a fillArgs, io hold.Streams) (any, error) {
	return g.of(ctx, a.Name, func(s *Session) (any, error) { return nothing{}, s.at.fill(ctx, io.Stdin) })
}

var (
	errNoInput  = tool.Errorf(tool.Invalid, "the operation needs an input")
	errNoOutput = tool.Errorf(tool.Invalid, "the operation needs an output")
)

// maxTenantList bounds the list of a directory, in bytes: about 30,000 files with typical names.
const maxTenantList = 4 << 20

func (g *guest) look(ctx context.Context, a lookArgs, io hold.Streams) (any, error) {
	if a.Do == "read" && io.Stdout == nil {
		return nil, errNoOutput
	}
	a.Room = maxTenantList
	return g.of(ctx, a.Name, func(s *Session) (any, error) { return s.at.look(ctx, a.Look, io.Stdout) })
}

func (g *guest) watch(ctx context.Context, a watchArgs, io hold.Streams) (any, error) {
	id, err := g.find(a.Name)
	if err != nil {
		return nil, err
	}
	a.Name = id
	return watchFor(ctx, g.m, a, io)
}

// log writes a session's log with the tenant's name of the session.
func (g *guest) log(ctx context.Context, a logArgs, io hold.Streams) (any, error) {
	id, err := g.find(a.Name)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriter(io.Stdout)
	secret, name := []byte(id), []byte(a.Name) // in messages too
	err = g.m.Log(ctx, id, a.Connections, func(line []byte) error {
		if _, err := out.Write(append(bytes.ReplaceAll(line, secret, name), '\n')); err != nil {
			return err
		}
		return ctx.Err()
	})
	return nothing{}, errors.Join(err, out.Flush())
}

// entries lists the Manager's sessions; on Kubernetes only the tenant's.
func (g *guest) entries(ctx context.Context) ([]overlay.Entry, error) {
	if p, ok := g.m.place.(*pods); ok {
		return p.listOf(ctx, g.tenant().Owner())
	}
	return g.m.List(ctx)
}

// list returns the tenant's sessions, each with the fields that the tenant may see.
func (g *guest) list(ctx context.Context, _ nothing, _ hold.Streams) (any, error) {
	all, err := g.entries(ctx)
	if err != nil {
		return nil, err
	}
	names, out := g.tenant().Names(), []overlay.Entry{}
	for _, e := range all {
		name, ok := names[e.ID]
		if !ok {
			continue
		}
		entry := overlay.Entry{ID: name, InUse: e.InUse, Held: e.Held, State: overlay.State{
			Schema: e.State.Schema, ID: name, Kept: e.State.Kept, Status: e.State.Status, Created: e.State.Created, LastUsed: e.State.LastUsed,
			TTL: e.State.TTL, Idle: e.State.Idle, Pause: e.State.Pause, Stood: e.State.Stood,
		}}
		if e.Problem != "" {
			entry.Problem = "the session can't be used; remove it"
		}
		if o, err := settingsOf(e.State.Settings); err == nil {
			if entry.State.Settings, err = json.Marshal(chosen(o)); err != nil {
				return nil, err
			}
		}
		out = append(out, entry)
	}
	slices.SortFunc(out, func(a, b overlay.Entry) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (g *guest) stop(ctx context.Context, a named1, _ hold.Streams) (any, error) {
	id, err := g.find(a.Name)
	if err != nil {
		return nil, err
	}
	return nothing{}, g.m.Stop(ctx, id)
}

func (g *guest) remove(_ context.Context, a named1, _ hold.Streams) (any, error) {
	id, err := g.find(a.Name)
	if tool.KindOf(err) == tool.NotFound && g.tenant().Forget(a.Name) == nil {
		return nothing{}, nil
	}
	if err != nil {
		return nil, err
	}
	err = g.tenant().Remove(id)
	if err == nil {
		g.forget(id)
	}
	return nothing{}, err
}

func (g *guest) rename(_ context.Context, a renameArgs, _ hold.Streams) (any, error) {
	if !sessionName().MatchString(a.To) {
		return nil, tool.Errorf(tool.Invalid, "name %q must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen", clip.Text(a.To)).In("name")
	}
	id, err := g.find(a.Name)
	if err != nil {
		return nil, err
	}
	return nothing{}, g.tenant().Rename(id, a.To)
}

// theirs returns a template as its tenant may see it.
func (g *guest) theirs(t Template, names map[string]string) Template {
	t.Owner, t.Session = "", names[t.Session]
	return t
}

func (g *guest) templates(_ context.Context, _ nothing, _ hold.Streams) (any, error) {
	all, err := g.m.Templates()
	out, names := []Template{}, g.tenant().Names()
	for _, t := range all {
		if t.Owner == g.tenant().Owner() {
			out = append(out, g.theirs(t, names))
		}
	}
	if len(all) > 0 {
		err = nil // an unreadable template may belong to another tenant
	}
	return out, err
}

// ownTemplateOf finds one of the tenant's templates. Templates of others are not found.
func (g *guest) ownTemplateOf(ref string) (Template, error) {
	t, err := g.m.FindTemplate(ref, g.tenant().Owner())
	if tool.KindOf(err) == tool.NotFound || err == nil && t.Owner != g.tenant().Owner() {
		return Template{}, tool.Errorf(tool.NotFound, "template %q not found; `wisbox template list` shows those there are", clip.Text(ref)).In("template")
	}
	return t, err
}

func (g *guest) findTemplate(_ context.Context, a templateArgs, _ hold.Streams) (any, error) {
	if a.Owner != "" {
		return nil, errNotOffered("a template of another owner")
	}
	t, err := g.ownTemplateOf(a.Ref)
	return g.theirs(t, g.tenant().Names()), err
}

func (g *guest) removeTemplate(ctx context.Context, a named1, _ hold.Streams) (any, error) {
	t, err := g.ownTemplateOf(a.Name)
	if err != nil {
		return nil, err
	}
	return nothing{}, g.m.RemoveTemplate(ctx, t.ID)
}

// keepTemplate creates a template of a session for the tenant.
func (g *guest) keepTemplate(ctx context.Context, id string, o *templateOp) (*hold.Answer, error) {
	if o.Name != "" {
		if err := templates.CheckName(o.Name); err != nil {
			return nil, err
		}
	}
	t, err := g.tenant().Keep(ctx, id, o.Name, func(ctx context.Context) (t Template, err error) {
		s, err := g.m.Attach(ctx, id)
		if err != nil {
			return t, err
		}
		t, err = s.CreateTemplate(ctx, &o.TemplateOptions)
		return t, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	})
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(g.theirs(t, g.tenant().Names()))
	return &hold.Answer{Value: raw}, err
}

// within rejects durations beyond the server's maximum.
func (g *guest) within(field string, d time.Duration) error {
	if d < 0 || d > g.opts.MaxTime {
		return tool.Errorf(tool.Invalid, "%s is %s; this server allows at most %s", field, d, g.opts.MaxTime).In(field)
	}
	return nil
}
