package wisbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"reflect"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/internal/settings"
	"github.com/wisbox/wisbox/internal/sharing"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// Tenant is one of a server's mutually isolated users, as [Manager.ServeTenant] sees it. Names are the
// tenant's own. A session's ID is its name on this machine, and never part of an answer. Methods may be
// called concurrently and return [*tool.Error]s.
type Tenant interface {
	// Begin admits a request of size bytes before it is read. The caller must call end after the operation.
	Begin(size int) (end func(), err error)
	// Admit is called before an operation, and may wait. The caller must call done with the operation's
	// error when it ends; a started program is part of its operation.
	Admit(ctx context.Context, a Admission) (done func(error), err error)
	// Find returns the ID of the named session and marks it as used. Its error is not_found if there is no
	// such session.
	Find(name string) (id string, err error)
	// Names returns the names of the tenant's sessions by ID.
	Names() map[string]string
	// Create reserves places for sessions with these names and options, and calls open with their IDs. On
	// an error, it keeps none of them. If a name is in use, the error is exists.
	Create(ctx context.Context, names []string, o *SessionOptions, open func(ctx context.Context, ids []string) error) error
	// Rename renames a session. If the name is in use, the error is exists.
	Rename(id, to string) error
	// Remove removes a session. Its name is free when Remove returns.
	Remove(id string) error
	// Forget removes a session whose creation was interrupted. Its error is not_found if there is no such
	// session.
	Forget(name string) error
	// Owner returns the owner of the tenant's templates.
	Owner() string
	// Keep reserves space for a template of a session, and returns the template made by create.
	Keep(ctx context.Context, id, name string, create func(ctx context.Context) (Template, error)) (Template, error)
}

// Admission is an operation that a tenant's client asks for.
type Admission struct {
	Op      string // its name, or "unknown" if no tenant may ask for it
	Session string // the session's ID, or "" for operations without a session
	AtOnce  int    // how many of them a tenant may do at the same time, since they use much of this process; 0 is any number
}

// TenantOptions are the options of [Manager.ServeTenant]. Tenant is required.
type TenantOptions struct {
	Tenant Tenant
	// Session has the options of each session: its image, and the maximum and default of its limits.
	Session SessionOptions
	// Internet allows the tenant to open the sessions' network to public hosts.
	Internet bool
	// MaxTime bounds TTL, Idle and the time limits of calls. Default 24 h.
	MaxTime time.Duration
	// Hidden is called with the cluster's own errors, of which tenants get a version without names. It may
	// be called concurrently. Default none.
	Hidden func(error)
	// Caller prefixes the caller that the client reports, in the sessions' logs.
	Caller string
}

// ServeTenant is [Manager.ServeFar] for an untrusted client. The client can use only the tenant's sessions
// and templates, with listed operations, arguments and settings; all others are unsupported. Answers
// contain no paths of this machine and no names of a cluster. The Manager needs [Options.Holder] or
// sessions on Kubernetes.
func (m *Manager) ServeTenant(ctx context.Context, stream io.ReadWriteCloser, opts *TenantOptions) error {
	if m.Cluster() == nil && (m.here == nil || len(m.opts.Holder) == 0) {
		return tool.Errorf(tool.Unsupported, "tenants need sessions of this machine, and a command that holds them, or sessions on Kubernetes")
	}
	return m.serveTenant(ctx, stream, opts)
}

func (m *Manager) serveTenant(ctx context.Context, stream io.ReadWriteCloser, opts *TenantOptions) error {
	t := &guest{m: m, opts: *opts, used: sharing.Few[string, *Session]{Max: maxUsed}}
	defer t.leave()
	if t.opts.MaxTime <= 0 {
		t.opts.MaxTime = maxCallTime
	}
	return m.guests.Serve(ctx, stream, m.hello(), opts.Tenant.Owner(), func(ctx context.Context, c net.Conn) {
		hold.ServeGuest(ctx, c, t, t.opts.Tenant.Begin)
	})
}

// guest serves a tenant's client.
type guest struct {
	m    *Manager
	opts TenantOptions

	used sharing.Few[string, *Session] // on Kubernetes: open handles, which keep connections open between operations
}

// maxUsed bounds the sessions that one client connection keeps open.
const maxUsed = 16

// session opens a session for an operation. The caller must close it.
func (g *guest) session(ctx context.Context, id string) (*Session, error) {
	s, err := g.m.Attach(ctx, id)
	if kind := tool.KindOf(err); kind == tool.NotFound || kind == tool.Closed {
		g.forget(id)
	}
	if err != nil || !g.elsewhere() || !g.used.Reserve(id) {
		return s, err
	}
	more, err := g.m.Attach(ctx, id)
	switch {
	case err != nil:
		g.forget(id)
	case !g.used.Put(id, more):
		_ = more.Close(context.WithoutCancel(ctx)) // the operation uses the other handle
	}
	return s, nil
}

// forget closes the kept handle of a session that is gone, and frees its place.
func (g *guest) forget(id string) {
	if s, ok := g.used.Drop(id); ok {
		_ = s.Close(context.Background()) // the session itself is another's to end
	}
}

// leave closes the handles kept for the connection.
func (g *guest) leave() {
	for _, s := range g.used.Empty() {
		_ = s.Close(context.Background()) // the session itself goes on
	}
}

func (g *guest) tenant() Tenant { return g.opts.Tenant }

// elsewhere reports whether the wisbox in each session's Pod does the work. Checks still happen here: an
// accepted operation is encoded again from its type and sent to the Pod.
func (g *guest) elsewhere() bool { return g.m.there != nil }

// mayAsk returns an error unless tenants may ask for the operation of s, which may be nil, with these arguments.
func (g *guest) mayAsk(s *spec, req hold.Request) error {
	if s == nil || s.tenants == nil {
		return errNotOffered("the operation " + clip.Text(req.Op))
	}
	if err := s.tenants.names(req.Op, req.Args); err != nil {
		return err
	}
	if s.notPods != "" && g.elsewhere() {
		return errNotOnPods(s.notPods, saveAndLoad)
	}
	return nil
}

// admit asks the tenant for room for the operation of s, nil for one that a client has made up.
func (g *guest) admit(ctx context.Context, s *spec, id string) (done func(error), err error) {
	a := Admission{Op: "unknown", Session: id} // clients may send any text
	if s != nil && s.tenants != nil {
		a.Op, a.AtOnce = s.name, s.atOnce
	}
	return g.tenant().Admit(ctx, a)
}

// callID matches the IDs that clients give their calls, which become parts of file and step names.
var callID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z]{26}$`) })

func errNotOffered(what string) *tool.Error {
	return tool.Errorf(tool.Unsupported, "%s isn't offered behind an API key; do without it, or reach the machine by ssh", what)
}

// meant finds the session of a request and checks the operation.
func (g *guest) meant(s *spec, req hold.Request) (id string, op operation, err error) {
	if err := g.mayAsk(s, req); err != nil {
		return "", nil, err
	}
	if !callID().MatchString(req.Call) {
		return "", nil, tool.Errorf(tool.Invalid, "the call's ID isn't one that wisbox makes")
	}
	if s.op == nil { // a session's holder has no such operation
		id, err = g.find(req.Session)
		return id, nil, err
	}
	if op, err = operationOf(req); err != nil {
		return "", nil, err
	}
	if s.tenants.check != nil {
		if err := s.tenants.check(g, op); err != nil {
			return "", nil, err
		}
	}
	id, err = g.find(req.Session)
	return id, op, err
}

// ofSession returns the spec of a session's operation, or nil.
func ofSession(name string) *spec {
	if s := specByName[name]; s != nil && s.place == nil {
		return s
	}
	return nil
}

func (g *guest) find(name string) (id string, err error) {
	if !sessionName().MatchString(name) {
		return "", errNoSession(name)
	}
	return g.tenant().Find(name)
}

func errNoSession(name string) error {
	return tool.Errorf(tool.NotFound, "session %q not found; `wisbox ls` shows those there are", clip.Text(name)).In("session")
}

// by adds the key's caller to the context, for logs.
func (g *guest) by(ctx context.Context) context.Context {
	return tool.WithCaller(ctx, strings.TrimSpace(g.opts.Caller+" "+tool.Caller(ctx)))
}

// Do implements hold.Session.
func (g *guest) Do(ctx context.Context, req hold.Request, io hold.Streams) (_ *hold.Answer, err error) {
	defer g.survive(&err)
	ctx = g.by(ctx)
	if req.Session == "" {
		return g.place(ctx, req, io)
	}
	asked := ofSession(req.Op)
	id, op, err := g.meant(asked, req)
	done, refused := g.admit(ctx, asked, id)
	if refused != nil {
		return nil, refused
	}
	defer func() { done(err) }()
	defer g.survive(&err)
	if err != nil {
		return nil, err
	}
	if op == nil {
		return nil, tool.Errorf(tool.Invalid, "%s starts a program, which this request can't do", req.Op)
	}
	if err := asked.streams(io); err != nil {
		return nil, err
	}
	answer, err := g.do(ctx, id, req, op, io)
	return answer, g.told(err, id, req.Session)
}

func (g *guest) do(ctx context.Context, id string, req hold.Request, op operation, io hold.Streams) (*hold.Answer, error) {
	if o, ok := op.(*templateOp); ok {
		return g.keepTemplate(ctx, id, o)
	}
	s, err := g.session(ctx, id)
	if err != nil {
		return nil, err
	}
	answer, err := s.serve(ctx, op, io, req.Call)
	if hide := specOf(op).tenants.hide; err == nil && hide != nil {
		err = hide(answer, id, req.Session)
	}
	if err = errors.Join(err, s.Close(context.WithoutCancel(ctx))); err != nil {
		return nil, err
	}
	return answer, nil
}

// Start implements hold.Session.
func (g *guest) Start(ctx context.Context, req hold.Request, io hold.Streams) (_ sandbox.Process, err error) {
	defer g.survive(&err)
	ctx = g.by(ctx)
	asked := ofSession(req.Op)
	id, op, err := g.meant(asked, req)
	done, refused := g.admit(ctx, asked, id)
	if refused != nil {
		return nil, refused
	}
	var p sandbox.Process
	if err == nil {
		p, err = g.start(ctx, id, req, op, io)
	}
	if err != nil {
		done(err)
		return nil, g.told(err, id, req.Session)
	}
	return guestProcess{p, g, done, id, req.Session}, nil
}

func (g *guest) start(ctx context.Context, id string, req hold.Request, op operation, io hold.Streams) (p sandbox.Process, err error) {
	defer g.survive(&err)
	s, err := g.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if op == nil {
		p, err = dialFor(ctx, s, req, io)
	} else {
		p, err = s.startFor(ctx, op, io, req)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return holding(s, p), nil
}

// guestProcess is a program whose errors reveal nothing about this machine.
type guestProcess struct {
	sandbox.Process
	g        *guest
	done     func(error)
	id, name string
}

// Introduction implements [hold.Introducer].
func (p guestProcess) Introduction() (said []byte, err error) {
	defer p.g.survive(&err)
	if of, ok := sandbox.As[hold.Introducer](p.Process); ok {
		said, err = of.Introduction()
	}
	return said, p.g.told(err, p.id, p.name)
}

// Wait implements sandbox.Process. It must be called exactly once.
func (p guestProcess) Wait(ctx context.Context) (res sandbox.Result, err error) {
	defer func() { p.done(err) }()
	defer p.g.survive(&err)
	res, err = p.Process.Wait(ctx)
	return res, p.g.told(err, p.id, p.name)
}

// Signal implements sandbox.Process.
func (p guestProcess) Signal(name string) (err error) {
	defer p.g.survive(&err)
	return p.Process.Signal(name)
}

// Kill implements sandbox.Process.
func (p guestProcess) Kill() (err error) {
	defer p.g.survive(&err)
	return p.Process.Kill()
}

// Resize implements sandbox.Process.
func (p guestProcess) Resize(size sandbox.WinSize) (err error) {
	defer p.g.survive(&err)
	return p.Process.Resize(size)
}

// survive turns a panic into an error of one operation, to protect the sessions of other tenants.
func (g *guest) survive(err *error) {
	if v := recover(); v != nil {
		g.m.log.Error("an operation of a tenant panicked", "panic", v, "stack", string(debug.Stack()))
		*err = tool.Errorf(tool.Internal, "wisbox failed in a way that it did not expect; the server's log says more")
	}
}

// Busy implements hold.Session.
func (*guest) Busy() bool { return true }

// Empty implements hold.Session.
func (*guest) Empty(context.Context) error { return nil }

// told returns err as the tenant may see it: errors of the cluster contain names that only operators may
// see.
func (g *guest) told(err error, id, name string) error {
	var of clusters
	if !errors.As(err, &of) || errors.Is(err, errLost) {
		return unnamed(err, id, name)
	}
	if g.opts.Hidden != nil {
		g.opts.Hidden(of.error)
	}
	switch kind := tool.KindOf(err); kind {
	case tool.Closed, tool.NotFound:
		return tool.Errorf(tool.Closed, "session %s has ended, and its files are lost; create it again", clip.Text(name)).In("session")
	case tool.Limit, tool.NoSpace:
		return tool.Errorf(tool.NoSpace, "this server has no room for one more session now; try again later")
	}
	return tool.Errorf(tool.Unavailable, "the server can't use the session's Pod now; call again, and if that doesn't help, ask the server's operator, whose log has the cause")
}

// unnamed replaces a session's ID in err by the tenant's name of the session.
func unnamed(err error, id, name string) error {
	if err == nil {
		return nil
	}
	e := tool.AsError(err)
	if id == "" || !strings.Contains(e.Message, id) {
		return e
	}
	return (&tool.Error{Kind: e.Kind, Field: e.Field, Message: strings.ReplaceAll(e.Message, id, name)}).Because(err)
}

// tenantSettings are the settings of [SessionOptions] that a tenant's client may give. It excludes settings of this
// machine: services, user IDs, seccomp profiles, proxies, rules that inject secrets, directories, and
// digests that other tenants' sessions may share.
var tenantSettings = settings.Of[SessionOptions]("tenant")

// maxTenantSettings bounds the settings without secrets, in bytes, since each list of sessions reads them.
const maxTenantSettings = 128 << 10

// chosen returns the settings that a tenant may see.
func chosen(o SessionOptions) SessionOptions {
	out := settings.Keep(o, "tenant")
	if len(o.Secrets) > 0 {
		out.Secrets = map[string]Secret{}
		for name := range o.Secrets {
			out.Secrets[name] = Secret{}
		}
	}
	return out
}

// options returns the options of a new session: the server's own, with the client's choices within its
// limits.
func (g *guest) options(raw json.RawMessage) (*SessionOptions, error) {
	if err := checkSettings(raw); err != nil {
		return nil, err
	}
	asked := farOptions{}
	if err := json.Unmarshal(raw, &asked); err != nil {
		return nil, tool.Errorf(tool.Invalid, "the session's settings can't be read").Because(err)
	}
	o := g.opts.Session
	o.DigestTag = "tenant" // the tenant mustn't use texts of others
	if err := g.take(&o, asked); err != nil {
		return nil, err
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return &o, nil
}

// checkSettings rejects unlisted settings and oversized ones.
func checkSettings(raw json.RawMessage) error {
	size := 0
	err := members(raw, settings.Keys[farOptions]("tenant"), func(name string, n int, listed bool) error {
		if !listed {
			return errNotOffered("the setting " + clip.Text(name)).In(clip.Text(name))
		}
		if name != "values" { // values have their own bounds
			size += n
		}
		if size > maxTenantSettings {
			return tool.Errorf(tool.TooLarge, "the session's settings have more than %d bytes, which is the maximum; give fewer", maxTenantSettings)
		}
		return nil
	})
	if errors.Is(err, errMalformed) {
		return tool.Errorf(tool.Invalid, "the session's settings can't be read").Because(err)
	}
	return err
}

// take joins a client's settings with the server's.
func (g *guest) take(o *SessionOptions, asked farOptions) error {
	for _, check := range []func(*SessionOptions, farOptions) error{g.takeImage, g.takeFiles, g.takeIsolation} {
		if err := check(o, asked); err != nil {
			return err
		}
	}
	if err := g.checkRules(asked.Allow); err != nil {
		return err
	}
	most := o.bounded()
	for _, f := range tenantSettings {
		if err := g.takeOne(f, f.In(o), f.In(&asked.SessionOptions), f.In(&most)); err != nil {
			return err
		}
	}
	o.Name, o.Kept = asked.Name, true
	return nil
}

// takeOne joins one setting, whose server's own is at most most.
func (g *guest) takeOne(f settings.Field, own, asked, most reflect.Value) error {
	if d, ok := reflect.TypeAssert[time.Duration](asked); ok {
		if err := g.within(f.Name, d); err != nil {
			return err
		}
	}
	switch f.Rule {
	case "own":
		own.Set(asked)
	case "first", "either":
		if !asked.IsZero() {
			own.Set(asked)
		}
	case "most":
		if !most.IsZero() && settings.Less(most, asked) {
			return tool.Errorf(tool.Limit, "%s is %s; this server gives a session at most %s", f.Name, f.Text(asked), f.Text(most)).In(f.Name)
		}
		if !asked.IsZero() {
			own.Set(asked)
		}
	}
	return nil
}

// takeImage takes the server's image, or one of the tenant's templates with its image.
func (g *guest) takeImage(o *SessionOptions, asked farOptions) error {
	own := cmp.Or(o.Image, g.m.defaultImage())
	switch {
	case asked.Image != "" && asked.Image != own && asked.Image != o.Image:
		return tool.Errorf(tool.Unsupported, "the image %q isn't offered; this server's sessions have %s, so leave image out", clip.Text(asked.Image), own).In("image")
	case asked.Pull != "" && asked.Pull != PullMissing && asked.Pull != PullNever:
		return errNotOffered("a pull of images").In("pull")
	}
	o.Image = own
	if asked.Template == "" {
		return nil
	}
	if g.elsewhere() {
		return errNotOnPods("a template", saveAndLoad).In("template")
	}
	t, err := g.ownTemplateOf(asked.Template)
	if err != nil {
		return err
	}
	o.Template, o.Image, o.Pull = t.ID, "", PullNever
	return nil
}

// takeFiles takes mounts from the request's stream, and secrets as values.
func (g *guest) takeFiles(o *SessionOptions, asked farOptions) error {
	if len(asked.Mounts) > 0 && asked.MountsFrom == "" {
		return tool.Errorf(tool.Invalid, "a client on another machine can't mount files of this one; leave mounts out").In("mounts")
	}
	secrets := map[string]box.Secret{}
	for name, value := range asked.Values {
		secrets[name] = box.Secret{Value: value}
	}
	if err := box.CheckSecrets(secrets); err != nil {
		return err
	}
	o.Secrets, o.AllowedRoots = outer(secrets), nil
	env := maps.Clone(o.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, asked.Env)
	o.Env = env
	return nil
}

// takeIsolation takes the server's isolation, or a stronger one.
func (g *guest) takeIsolation(o *SessionOptions, asked farOptions) error {
	switch asked.Isolation {
	case "", o.Isolation, sandbox.IsolationGVisor:
	default:
		if asked.Isolation != sandbox.IsolationDefault || o.Isolation != "" {
			return tool.Errorf(tool.Unsupported, "isolation is %q; this server's is %q, so leave isolation out", clip.Text(string(asked.Isolation)), o.Isolation).In("isolation")
		}
	}
	o.Isolation = cmp.Or(asked.Isolation, o.Isolation)
	return nil
}
