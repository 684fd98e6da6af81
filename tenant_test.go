package wisbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/far"
	"github.com/wisbox/wisbox/internal/hold"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// landlord gives tenants names; each session's ID begins with its tenant's letter.
type landlord struct {
	mu    sync.Mutex
	made  int
	via   *wisbox.Manager // that serves, if the sessions are elsewhere
	owner string
	ids   map[string]string // by name
	sizes []sandbox.Limits
	ops   []string
}

func (l *landlord) Begin(int) (func(), error) { return func() {}, nil }

func (l *landlord) Admit(_ context.Context, a wisbox.Admission) (func(error), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ops = append(l.ops, a.Op)
	return func(error) {}, nil
}

func (l *landlord) Find(name string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok := l.ids[name]
	if !ok {
		return "", tool.Errorf(tool.NotFound, "session %q not found", name)
	}
	return id, nil
}

func (l *landlord) Names() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]string{}
	for name, id := range l.ids {
		all[id] = name
	}
	return all
}

func (l *landlord) Create(ctx context.Context, names []string, o *wisbox.SessionOptions, open func(context.Context, []string) error) error {
	var ids []string
	for range names {
		l.made++
		ids = append(ids, fmt.Sprintf("%s%019d", l.owner, l.made))
	}
	l.sizes = append(l.sizes, o.Limits.WithDefaults())
	if err := open(ctx, ids); err != nil {
		return err
	}
	for i, name := range names {
		l.ids[name] = ids[i]
	}
	return nil
}

func (l *landlord) Rename(id, to string) error {
	for name, of := range l.ids {
		if of == id {
			delete(l.ids, name)
			l.ids[to] = id
		}
	}
	return nil
}

func (l *landlord) Remove(id string) error {
	maps.DeleteFunc(l.ids, func(_, of string) bool { return of == id })
	return nil
}

func (l *landlord) Forget(name string) error {
	if name != "half" {
		return tool.Errorf(tool.NotFound, "session %q not found", name)
	}
	return nil
}

func (l *landlord) Owner() string { return l.owner }

func (l *landlord) Keep(ctx context.Context, _, _ string, create func(context.Context) (wisbox.Template, error)) (wisbox.Template, error) {
	return create(ctx)
}

// spy notes all that a machine says.
type spy struct {
	io.ReadWriteCloser
	mu   *sync.Mutex
	said *bytes.Buffer
}

func (s spy) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said.Write(p[:n])
	return n, err
}

// tenancy is a tenant's client, what it hears, and the machine.
type tenancy struct {
	t *testing.T
	*landlord
	near, holder *wisbox.Manager
	m            *wisbox.Manager // of the client
	heard        func() string
	raw          *hold.Client
}

// newClient is one more client of a tenant. through may be nil.
func newClient(t *testing.T, near *wisbox.Manager, l *landlord, opts wisbox.TenantOptions, through func(io.ReadWriteCloser) io.ReadWriteCloser) *tenancy {
	t.Helper()
	opts.Tenant, opts.Caller = l, "key_"+l.owner
	var serving sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	mu, said := &sync.Mutex{}, &bytes.Buffer{}
	connect := func(context.Context) (io.ReadWriteCloser, error) {
		a, b := net.Pipe()
		serve := near.ServeTenant
		if l.via != nil {
			serve = l.via.ServeTenantElsewhere
		}
		serving.Go(func() { _ = serve(ctx, b, &opts) })
		if through != nil {
			return through(a), nil
		}
		return spy{a, mu, said}, nil
	}
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{Far: "near " + l.owner, CacheDir: filepath.Join(t.TempDir(), "far"), FarConnect: connect})
	require.NoError(t, err)
	conns := far.NewClient(far.Func{Name: "near", Dial: connect}, m.Hello())
	t.Cleanup(func() {
		require.NoError(t, m.Close())
		require.NoError(t, conns.Close())
		cancel()
		serving.Wait()
	})
	heard := func() string { mu.Lock(); defer mu.Unlock(); return said.String() }
	return &tenancy{t, l, near, nil, m, heard, &hold.Client{Far: true, Dial: func(ctx context.Context) (*hold.Conn, error) { return hold.On(conns.Dial(ctx)) }}}
}

// tenants are two on one machine, where each has a session "box", whose holder runs.
func tenants(t *testing.T, opts wisbox.TenantOptions) (a, b *tenancy) {
	t.Helper()
	return tenantsOf(t, opts, false)
}

// tenantsOf are tenants; elsewhere has a server between them and the machine of the sessions.
func tenantsOf(t *testing.T, opts wisbox.TenantOptions, elsewhere bool) (a, b *tenancy) {
	t.Helper()
	holder, host := manager(t, wisbox.Options{})
	near, err := wisbox.NewManager(t.Context(), func() *wisbox.Options {
		o := &wisbox.Options{CacheDir: holder.CacheDir(), Backend: host, Holder: []string{"/bin/false"}}
		return o
	}())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, near.Close()) })
	all := make([]*tenancy, 2)
	var via *wisbox.Manager
	if elsewhere {
		via = farFrom(t, near, wisbox.Options{}, nil)
	}
	for i, owner := range []string{"a", "b"} {
		l := &landlord{owner: owner, ids: map[string]string{}, via: via}
		all[i] = newClient(t, near, l, opts, nil)
		_, err := all[i].m.Open(t.Context(), &wisbox.SessionOptions{Name: "box", Kept: true})
		require.NoError(t, err)
		holdFor(t, holder, all[i].ids["box"], time.Minute)
		all[i].holder = holder
	}
	return all[0], all[1]
}

const anyCall = "01m84svd6xscaca3fcwdk72mr4"

// ask asks as a hostile client does.
func (c *tenancy) ask(op, session, args string) error {
	c.t.Helper()
	io := hold.Streams{Stdin: strings.NewReader(""), Stdout: io.Discard}
	return c.raw.Do(c.t.Context(), hold.Request{Op: op, Session: session, Call: anyCall, Args: json.RawMessage(args)}, io, &hold.Answer{})
}

func (c *tenancy) begin(op, session, args string) error {
	c.t.Helper()
	p, err := c.raw.Start(c.t.Context(), hold.Request{Op: op, Session: session, Call: anyCall, Args: json.RawMessage(args)}, hold.Streams{Stdin: strings.NewReader(""), Stdout: io.Discard})
	if err == nil {
		_, err = p.Wait(c.t.Context())
	}
	return err
}

// TestATenantIsRefusedWhatIsNotListed: an operation, an argument and a setting that is new is
// refused until somebody has listed it, there and here.
func TestATenantIsRefusedWhatIsNotListed(t *testing.T) {
	refused := map[string]bool{"copy": true, "apply": true, "branch": true, "dial": true, "service_output": true, "limits": true}
	listed := wisbox.TenantOperations()
	for op := range wisbox.Operations() {
		_, ok := listed[op]
		assert.NotEqual(t, refused[op], ok, "%s: list it here too, once you know that it does a tenant's neighbours and this machine no harm", op)
	}
	assert.ElementsMatch(t, wisbox.PlaceOperations(), wisbox.TenantPlaceOperations())
	ownSettings := []string{"secrets", "allowed_roots", "userns", "seccomp", "inject", "egress_via", "egress_out", "egress_record", "services", "digest", "digest_tag"}
	assert.ElementsMatch(t, wisbox.Settings(), slices.Concat(wisbox.TenantSettings(), ownSettings))
	ownArgs := map[string][]string{"template": {"owner", "built"}}

	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprint("elsewhere=", elsewhere), func(t *testing.T) {
			a, _ := tenantsOf(t, wisbox.TenantOptions{}, elsewhere)
			refusesTheRest(t, a, refused, ownArgs, ownSettings)
		})
	}
}

func refusesTheRest(t *testing.T, a *tenancy, refused map[string]bool, ownArgs map[string][]string, ownSettings []string) {
	t.Helper()
	listed := wisbox.TenantOperations()
	refuses := func(err error, what string) {
		t.Helper()
		assert.Equal(t, tool.Unsupported, tool.KindOf(err), what)
		assert.ErrorContains(t, err, "isn't offered", what)
	}
	for op, args := range wisbox.Operations() {
		if refused[op] {
			refuses(a.ask(op, "box", "{}"), op)
			refuses(a.begin(op, "box", "{}"), op)
			continue
		}
		assert.ElementsMatch(t, args, slices.Concat(listed[op], ownArgs[op]), op)
		for _, arg := range append(slices.Clone(ownArgs[op]), "nosuch") {
			refuses(a.ask(op, "box", `{"`+arg+`":{}}`), op+" "+arg)
			refuses(a.begin(op, "box", `{"`+arg+`":{}}`), op+" "+arg)
			refuses(a.ask(op, "box", `{"`+arg+`":{},"`+arg+`":null}`), op+" "+arg)
		}
		for _, arg := range args { // which Go's decoder takes all the same
			refuses(a.ask(op, "box", `{"`+strings.ToUpper(arg)+`":null,"`+strings.ToUpper(arg)+`":{}}`), op+" "+arg)
			refuses(a.ask(op, "box", `{"`+strings.ToUpper(arg)+`":{},"`+strings.ToUpper(arg)+`":null}`), op+" "+arg)
			if slices.Contains(ownArgs[op], arg) {
				continue
			}
			require.ErrorContains(t, a.ask(op, "box", `{"`+arg+`":null,"`+arg+`":null}`), arg+" comes twice", op)
		}
	}
	for _, op := range append(wisbox.PlaceOperations(), "nosuch") {
		refuses(a.ask(op, "", `{"Nosuch":1}`), op)
		refuses(a.ask(op, "", `{"NAME":"box"}`), op)
		refuses(a.begin(op, "", `{"Name":"box"}`), op)
	}
	for _, name := range ownSettings {
		refuses(a.ask("open", "", `{"Options":{"`+name+`":{}}}`), name)
		refuses(a.ask("open", "", `{"Options":{"`+name+`":{},"`+name+`":null}}`), name)
		refuses(a.ask("open", "", `{"Options":{"`+strings.ToUpper(name)+`":{}}}`), name)
		refuses(a.ask("load", "", `{"Options":{"`+name+`":{}}}`), name)
	}
	require.ErrorContains(t, a.ask("open", "", `{"Options":{"env":{},"env":null}}`), "env comes twice")
	assert.Len(t, a.ids, 1, "nothing was made")
	assert.Subset(t, slices.Concat(slices.Collect(maps.Keys(listed)), wisbox.TenantPlaceOperations(), []string{"unknown"}), a.ops, "the log has no text of a client's")
}

// TestArgumentsThatAreNotListedAreNotKept: the first of them ends the reading.
func TestArgumentsThatAreNotListedAreNotKept(t *testing.T) {
	var many strings.Builder
	many.WriteString(`{"argv":["true"]`)
	for i := range 100_000 {
		fmt.Fprintf(&many, `,"%d":0`, i)
	}
	raw := []byte(many.String() + "}")
	for name, check := range map[string]func(json.RawMessage) error{"arguments": wisbox.TenantArguments("run"), "settings": wisbox.CheckTenantSettings} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.ErrorContains(t, check(raw), "isn't offered", name)
		runtime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*len(raw)), name)
	}
}

// TestTenantsDoNotMeet, nor the sessions of this machine's own user, by name or by ID.
func TestTenantsDoNotMeet(t *testing.T) {
	a, b := tenants(t, wisbox.TenantOptions{})
	own, err := a.near.Open(t.Context(), &wisbox.SessionOptions{Name: "own", Kept: true})
	require.NoError(t, err)
	holdFor(t, a.holder, "own", time.Minute)
	sb, err := b.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	text(t, sb, "write_file", `{"file_path":"f","content":"b's"}`)
	made, err := sb.CreateTemplate(t.Context(), &wisbox.TemplateOptions{Name: "kept"})
	require.NoError(t, err)
	theirs, err := own.CreateTemplate(t.Context(), &wisbox.TemplateOptions{Name: "own"})
	require.NoError(t, err)

	for op := range wisbox.TenantOperations() {
		for _, other := range []string{b.ids["box"], "own", "../own", "nosuch", strings.ToUpper(b.ids["box"]), "box/../own"} {
			for _, ask := range []func(string, string, string) error{a.ask, a.begin} {
				err := ask(op, other, "{}")
				assert.Contains(t, []tool.Kind{tool.NotFound}, tool.KindOf(err), "%s of %s: %v", op, other, err)
			}
		}
	}
	for _, other := range []string{b.ids["box"], "own", "../own", "nosuch"} {
		for op, args := range map[string]string{
			"fork": `,"N":1`, "fill": "", "attach": "", "look": `,"do":"list","path":"."`, "watch": `,"Path":"/"`, "touch": "", "log": "",
			"stop": "", "remove": "", "rename": `,"To":"mine"`,
		} {
			err := a.ask(op, "", `{"Name":"`+other+`"`+args+`}`)
			assert.Equal(t, tool.NotFound, tool.KindOf(err), "%s of %s: %v", op, other, err)
		}
	}
	for _, ref := range []string{made.ID, theirs.ID, "kept", "own"} {
		assert.Equal(t, tool.NotFound, tool.KindOf(a.ask("template_find", "", `{"Ref":"`+ref+`"}`)), ref)
		assert.Equal(t, tool.NotFound, tool.KindOf(a.ask("template_remove", "", `{"Name":"`+ref+`"}`)), ref)
		_, err := a.m.Open(t.Context(), &wisbox.SessionOptions{Template: ref})
		assert.Equal(t, tool.NotFound, tool.KindOf(err), ref)
	}
	require.ErrorContains(t, a.ask("template_find", "", `{"Ref":"kept","Owner":"b"}`), "isn't offered")
	list, err := a.m.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "box", list[0].ID)
	templates, err := a.m.Templates()
	require.NoError(t, err)
	assert.Empty(t, templates)
	templates, err = b.m.Templates()
	require.NoError(t, err)
	require.Len(t, templates, 1)
	assert.Equal(t, "box", templates[0].Session)
	assert.Empty(t, templates[0].Owner)
	got, err := fs.ReadFile(sb.Files(), "f")
	require.NoError(t, err)
	assert.Equal(t, "b's", string(got), "all of it is as it was")
}

// TestWhatATenantAsksForStaysWithinTheServers, whatever a client sends.
func TestWhatATenantAsksForStaysWithinTheServers(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("a secret of this machine's user"), 0o600))
	base := wisbox.TenantOptions{MaxTime: time.Hour, Session: wisbox.SessionOptions{Limits: sandbox.Limits{Memory: 256 << 20, CPUs: 0.5, Disk: 64 << 20}}}
	a, _ := tenants(t, base)
	for settings, says := range map[string]string{
		`"image":"docker.io/library/alpine"`: "image", `"pull":"always"`: "pull",
		`"limits":{"cpus":1}`: "at most 0.5", `"limits":{"memory_bytes":1073741824}`: "at most 256MiB", `"limits":{"disk_bytes":1073741824}`: "at most 64MiB",
		`"limits":{"pids":257}`: "at most 256", `"limits":{"nofile":20000}`: "at most", `"limits":{"inodes":1000000}`: "at most", `"limits":{"tmp_bytes":1073741824}`: "at most",
		`"limits":{"file_bytes":1073741824}`: "at most", `"limits":{"memory_bytes":-1}`: "memory", `"limits":{"cpus":-1}`: "cpus", `"limits":{"cpus":1e400}`: "can't be read",
		`"snapshot_space":1073741824`: "at most", `"max_processes":17`: "at most 16", `"max_processes":-1`: "max_processes",
		`"ttl":3600000000001`: "at most 1h", `"idle":3600000000001`: "at most 1h", `"ttl":-1`: "ttl", `"max_timeout":3600000000001`: "at most 1h", `"max_eval_timeout":3600000000001`: "at most 1h",
		`"allow":["example.com"]`: "opens no network", `"allow":["host:22"]`: "opens no network",
		`"mounts":[{"host_path":"/etc"}]`: "leave mounts out", `"isolation":"none"`: "isolation", `"profile":"nosuch"`: "profile",
		`"values":{"A":"eA=="}`: "secret", `"env":{"A=B":"x"}`: "env", `"name":"../x"`: "name", `"name":"UP"`: "name",
	} {
		err := a.ask("open", "", `{"Options":{`+settings+`}}`)
		if assert.Error(t, err, settings) {
			assert.ErrorContains(t, err, says, settings)
		}
	}
	for args, says := range map[string]string{
		`{"Options":{"mounts":[{"host_path":"/etc"}],"mounts_from":"here"}}`: "an archive can't be combined", `{"Options":{"mounts":[{"host_path":"/etc"}]}}`: "leave mounts out",
		`{"WithSettings":true}`: "isn't offered", `{"Options":{"image":"other"}}`: "image",
	} {
		require.ErrorContains(t, a.ask("load", "", args), says, args)
	}
	for _, n := range []int{-1, 0, 101} {
		require.ErrorContains(t, a.ask("fork", "", fmt.Sprintf(`{"Name":"box","N":%d}`, n)), "must be 1 to")
	}
	require.ErrorContains(t, a.ask("fork", "", `{"Name":"box","N":1,"Idle":3600000000001}`), "at most 1h")
	for op, args := range map[string][]string{
		"secrets": {`{"secrets":{"A":{"file":"` + secret + `"}}}`, `{"secrets":{"A":{"FILE":"` + secret + `"}}}`, `{"secrets":{"A":{}}}`, `{"secrets":{"../A":{"value":"YWFhYWFhYWFhYWFhYWFh"}}}`},
		"run":     {`{"argv":["true"],"lifetime":"detached"}`, `{"argv":["true"],"lifetime":"left"}`}, "process_start": {`{"argv":["true"],"lifetime":"left"}`},
		"egress_rules":   {`{"allow":["public"]}`, `{"allow":["private:10.0.0.1"],"replace":true}`},
		"context_change": {`{"change":"create","context":{"name":"x","env":{"A":"` + strings.Repeat("x", 65<<10) + `"}}}`},
	} {
		for _, one := range args {
			require.Error(t, a.ask(op, "box", one), one)
		}
	}
	err := a.raw.Do(t.Context(), hold.Request{Op: "pause", Session: "box", Call: "../../x", Args: []byte("{}")}, hold.Streams{}, &hold.Answer{})
	require.ErrorContains(t, err, "ID isn't one")
	for op := range wisbox.TenantOperations() { // without streams that it needs
		if op == "await_end" {
			continue
		}
		_ = a.raw.Do(t.Context(), hold.Request{Op: op, Session: "box", Call: anyCall, Args: []byte("{}")}, hold.Streams{}, &hold.Answer{})
		if p, err := a.raw.Start(t.Context(), hold.Request{Op: op, Session: "box", Call: anyCall, Args: []byte("{}")}, hold.Streams{}); err == nil {
			_ = p.Kill()
		}
	}
	for _, op := range wisbox.PlaceOperations() {
		_ = a.raw.Do(t.Context(), hold.Request{Op: op, Call: anyCall, Args: []byte(`{"Name":"no"}`)}, hold.Streams{}, &hold.Answer{})
	}
	err = a.raw.Do(t.Context(), hold.Request{Op: "load", Call: anyCall, Args: []byte("{}")}, hold.Streams{}, &hold.Answer{})
	require.ErrorContains(t, err, "needs an input")
	require.ErrorContains(t, a.ask("open", "", `{"Options":{"mounts_from":"`+strings.Repeat("x", 200<<10)+`"}}`), "more than 131072 bytes")
	maps.DeleteFunc(a.ids, func(name, _ string) bool { return name != "box" })
	assert.Len(t, a.ids, 1, "nothing else was made")

	_, err = a.m.Open(t.Context(), &wisbox.SessionOptions{Name: "small", Kept: true, Limits: sandbox.Limits{Memory: 64 << 20}, TTL: time.Minute, Env: map[string]string{"A": "b"}})
	require.NoError(t, err)
	last := a.sizes[len(a.sizes)-1]
	assert.Equal(t, []any{int64(64 << 20), 0.5, int64(64 << 20)}, []any{last.Memory, last.CPUs, last.Disk})
	there, err := a.near.Attach(t.Context(), a.ids["small"])
	require.NoError(t, err)
	o := there.Options()
	assert.True(t, o.Kept)
	assert.Equal(t, last, o.Limits)
	assert.Equal(t, time.Minute, o.TTL)
}

// TestATenantsCallsHaveTheServersBounds, where it has set any.
func TestATenantsCallsHaveTheServersBounds(t *testing.T) {
	a, _ := tenants(t, wisbox.TenantOptions{Session: wisbox.SessionOptions{MaxTimeout: time.Minute, MaxEvalTimeout: 10 * time.Second, MaxCode: 5000, MaxOutput: 6000}})
	open := func(o wisbox.SessionOptions) (wisbox.SessionOptions, error) {
		o.Kept = true
		s, err := a.m.Open(t.Context(), &o)
		if err != nil {
			return o, err
		}
		return s.Options(), nil
	}
	for says, o := range map[string]wisbox.SessionOptions{
		"max_timeout is 1m0.1s; this server gives a session at most 1m0s":  {MaxTimeout: time.Minute + 100*time.Millisecond},
		"max_eval_timeout is 11s; this server gives a session at most 10s": {MaxEvalTimeout: 11 * time.Second},
		"max_code is 5001; this server gives a session at most 5000":       {MaxCode: 5001},
		"max_output is 6001; this server gives a session at most 6000":     {MaxOutput: 6001},
	} {
		_, err := open(o)
		require.ErrorContains(t, err, says)
	}
	o, err := open(wisbox.SessionOptions{})
	require.NoError(t, err)
	assert.Equal(t, []any{time.Minute, 10 * time.Second, 5000, 6000}, []any{o.MaxTimeout, o.MaxEvalTimeout, o.MaxCode, o.MaxOutput})
	o, err = open(wisbox.SessionOptions{MaxTimeout: time.Second, MaxEvalTimeout: time.Second, MaxCode: 4000, MaxOutput: 5000})
	require.NoError(t, err)
	assert.Equal(t, []any{time.Second, time.Second, 4000, 5000}, []any{o.MaxTimeout, o.MaxEvalTimeout, o.MaxCode, o.MaxOutput})
}

// TestATenantsNetworkIsThatOfPublicHosts, where the server opens any.
func TestATenantsNetworkIsThatOfPublicHosts(t *testing.T) {
	a, _ := tenants(t, wisbox.TenantOptions{Internet: true})
	for _, rule := range []string{"host:22", "private:10.0.0.1", "tcp:example.com:22", "example.com:22", "10.0.0.1", "169.254.169.254", "localhost", "10.0.0.0/8", "[::1]"} {
		err := a.ask("open", "", `{"Options":{"allow":["`+rule+`"]}}`)
		require.Error(t, err, rule)
		require.Error(t, a.ask("egress_rules", "box", `{"allow":["`+rule+`"]}`), rule)
	}
	s, err := a.m.Open(t.Context(), &wisbox.SessionOptions{Name: "open", Kept: true, Allow: []string{"example.com", "*.example.org", "python", "public"}, Deny: []string{"private:10.0.0.1"}})
	if err != nil {
		s, err = a.m.Open(t.Context(), &wisbox.SessionOptions{Name: "open", Kept: true, Allow: []string{"example.com", "*.example.org", "python", "public"}})
	}
	require.NoError(t, err)
	assert.Equal(t, "open", s.ID())
}

// TestATenantLearnsNothingOfTheMachine: nothing that it hears has a path of the machine, the ID
// of a session, or another tenant's name; and its session does all that others do.
func TestATenantLearnsNothingOfTheMachine(t *testing.T) {
	a, _ := tenants(t, wisbox.TenantOptions{Internet: true})
	s, err := a.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	for _, one := range everything {
		if one.name == "a process" || one.name == "a clone" { // they look into the directory, or need a holder
			continue
		}
		_ = one.do(t.Context(), s)
	}
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "box", in.ID)
	assert.Empty(t, in.Workspace)
	_, err = s.Egress(t.Context())
	require.NoError(t, err)
	lines := 0
	require.NoError(t, a.m.Log(t.Context(), "box", false, func(line []byte) error {
		lines++
		assert.Contains(t, string(line), `"session":"box"`)
		assert.Contains(t, string(line), `"caller":"key_a `)
		return nil
	}))
	assert.NotZero(t, lines)
	clone, err := s.Clone(t.Context(), &wisbox.CloneOptions{Name: "twin", Kept: true})
	require.NoError(t, err)
	assert.Equal(t, "twin", clone.ID())
	holdFor(t, a.holder, a.ids["twin"], time.Minute)
	assert.Contains(t, text(t, clone, "snapshot_list", "{}"), "cloned")
	require.NoError(t, a.m.Rename(t.Context(), "twin", "third"))
	_, err = a.m.Attach(t.Context(), "twin")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte("x"), 0o644))
	mounted, err := a.m.Open(t.Context(), &wisbox.SessionOptions{AllowedRoots: []string{src}, Mounts: []hostmount.Mount{{HostPath: src}}})
	require.NoError(t, err)
	assert.NotContains(t, a.ids, "")
	require.NoError(t, mounted.Close(t.Context()))
	_, err = a.m.Open(t.Context(), &wisbox.SessionOptions{Template: "nosuch"})
	require.Error(t, err)
	var archive bytes.Buffer
	_, err = s.Save(t.Context(), &archive)
	require.NoError(t, err)
	_, err = a.m.Load(t.Context(), bytes.NewReader(archive.Bytes()), &wisbox.LoadOptions{Name: "loaded", Kept: true})
	require.NoError(t, err)
	for _, junk := range []string{"", "junk", strings.Repeat("x", 1<<20)} {
		_, err = a.m.Load(t.Context(), strings.NewReader(junk), &wisbox.LoadOptions{Name: "junk", Kept: true})
		require.Error(t, err)
	}
	assert.NotContains(t, a.ids, "junk")
	for _, e := range must(a.m.List(t.Context())) {
		assert.Zero(t, e.State.Owner)
		assert.Zero(t, e.State.Workspace)
	}

	heard := a.heard()
	assert.Contains(t, heard, "box")
	assert.NotContains(t, heard, a.near.CacheDir())
	assert.NotContains(t, heard, filepath.Dir(a.near.CacheDir()))
	for _, id := range a.ids {
		if i := strings.Index(heard, id); i >= 0 {
			t.Errorf("it hears %q", heard[max(0, i-200):min(len(heard), i+100)])
		}
	}
	archived := tar.NewReader(&archive)
	for h, err := archived.Next(); err == nil; h, err = archived.Next() {
		raw, err := io.ReadAll(archived)
		require.NoError(t, err)
		assert.NotContains(t, string(raw), a.ids["box"], h.Name)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestAPanicOfATenantsProgramIsItsOwn: others' connections are in the same process.
func TestAPanicOfATenantsProgramIsItsOwn(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	var ends []error
	p := wisbox.GuestProcess(m, struct {
		sandbox.Process
		hold.Introducer
	}{}, func(err error) { ends = append(ends, err) })
	_, introduced := p.(hold.Introducer).Introduction()
	errs := []error{introduced, p.Signal("TERM"), p.Resize(sandbox.WinSize{}), p.Kill()}
	assert.Empty(t, ends)
	_, err := p.Wait(t.Context())
	for _, err := range append(errs, err) {
		assert.Equal(t, tool.Internal, tool.KindOf(err))
	}
	assert.Equal(t, []error{err}, ends)
}

// panicking is a tenant whose sessions can't be looked for.
type panicking struct {
	*landlord
	ends []error
}

func (b *panicking) Admit(context.Context, wisbox.Admission) (func(error), error) {
	return func(err error) { b.ends = append(b.ends, err) }, nil
}

func (*panicking) Find(string) (string, error) { panic("broken") }

// TestAnOperationThatPanicsIsNoSuccess in the record of its end.
func TestAnOperationThatPanicsIsNoSuccess(t *testing.T) {
	m, _ := manager(t, wisbox.Options{})
	b := &panicking{landlord: &landlord{}}
	err := wisbox.GuestDo(t.Context(), m, b, hold.Request{Op: "attach", Args: []byte(`{"Name":"box"}`)})
	require.Equal(t, tool.Internal, tool.KindOf(err))
	assert.Equal(t, []error{err}, b.ends)
}

// TestATenantsConnectionThatIsCutLosesNothing either.
func TestATenantsConnectionThatIsCutLosesNothing(t *testing.T) {
	a, _ := tenants(t, wisbox.TenantOptions{})
	there, err := a.near.Attach(t.Context(), a.ids["box"])
	require.NoError(t, err)
	cutAnywhere(t, there.WorkspacePath(), func(through func(io.ReadWriteCloser) io.ReadWriteCloser) *wisbox.Manager {
		return newClient(t, a.near, a.landlord, wisbox.TenantOptions{}, through).m
	})
}

// TestACopyIsNoMoreOpenThanTheServer, which was started again without a network.
func TestACopyIsNoMoreOpenThanTheServer(t *testing.T) {
	a, _ := tenants(t, wisbox.TenantOptions{Internet: true})
	s, err := a.m.Open(t.Context(), &wisbox.SessionOptions{Name: "open", Kept: true, Allow: []string{"public"}})
	require.NoError(t, err)
	shut := newClient(t, a.near, a.landlord, wisbox.TenantOptions{}, nil)
	require.ErrorContains(t, shut.ask("fork", "", `{"Name":"open","N":1}`), "opens no network any more")
	assert.Equal(t, []string{"public"}, s.Options().Allow)
}

// TestTenantsOfSessionsElsewhere don't meet, learn nothing of the machines, and are refused what
// needs the sessions here. No file of the server's machine is read for them.
func TestTenantsOfSessionsElsewhere(t *testing.T) {
	a, b := tenantsOf(t, wisbox.TenantOptions{}, true)
	s, err := a.m.Attach(t.Context(), "box")
	require.NoError(t, err)
	for _, one := range everything {
		if one.name != "a process" && one.name != "a clone" { // they look into the directory, or need a holder
			_ = one.do(t.Context(), s)
		}
	}
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "box", in.ID)
	require.NoError(t, a.m.Log(t.Context(), "box", false, func(line []byte) error {
		assert.Contains(t, string(line), `"session":"box"`)
		assert.Contains(t, string(line), `"caller":"key_a `)
		return nil
	}))
	src := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte("of the client"), 0o644))
	mounted, err := a.m.Open(t.Context(), &wisbox.SessionOptions{Name: "mounted", Kept: true, AllowedRoots: []string{src}, Mounts: []hostmount.Mount{{HostPath: src}}})
	require.NoError(t, err)
	holdFor(t, a.holder, a.ids["mounted"], time.Minute)
	got, err := fs.ReadFile(mounted.Files(), "f")
	require.NoError(t, err)
	assert.Equal(t, "of the client", string(got))
	require.NoError(t, mounted.Reset(t.Context()))
	got, err = fs.ReadFile(mounted.Files(), "f")
	require.NoError(t, err)
	assert.Equal(t, "of the client", string(got), "it is filled again")
	list, err := fs.ReadDir(mounted.Files(), ".")
	require.NoError(t, err)
	assert.Len(t, list, 1)
	require.NoError(t, os.WriteFile(filepath.Join(src, "f"), []byte("changed"), 0o644))
	text(t, mounted, "write_file", `{"file_path":"g","content":"of the session"}`)
	var archive bytes.Buffer
	_, err = mounted.Save(t.Context(), &archive)
	require.NoError(t, err)
	_, err = a.m.Load(t.Context(), bytes.NewReader(archive.Bytes()), &wisbox.LoadOptions{Name: "loaded", Kept: true})
	require.NoError(t, err)
	for _, junk := range []string{"", "junk"} {
		_, err = a.m.Load(t.Context(), strings.NewReader(junk), &wisbox.LoadOptions{Name: "junk", Kept: true})
		require.Error(t, err)
	}

	options := `{"Options":{"mounts":[{"host_path":"` + src + `"}],"mounts_from":"here"}}`
	err = a.raw.Do(t.Context(), hold.Request{Op: "open", Call: anyCall, Args: []byte(options)}, hold.Streams{}, &hold.Answer{})
	require.ErrorContains(t, err, "needs an input")
	for op, args := range map[string]string{
		"fork": `{"Name":"box","N":1}`, "rename": `{"Name":"box","To":"mine"}`, "templates": `{}`, "template_find": `{"Ref":"x"}`, "template_remove": `{"Name":"x"}`,
	} {
		require.ErrorContains(t, a.ask(op, "", args), "isn't supported on Kubernetes", op)
	}
	require.ErrorContains(t, a.ask("template", "box", `{}`), "isn't supported on Kubernetes")
	for _, settings := range []string{`{"template":"x"}`, `{"image":"other"}`} {
		require.Error(t, a.ask("open", "", `{"Options":`+settings+`}`), settings)
	}
	for _, other := range []string{b.ids["box"], "../box", "nosuch"} {
		for op := range wisbox.TenantOperations() {
			if op == "template" {
				continue
			}
			assert.Equal(t, tool.NotFound, tool.KindOf(a.ask(op, other, "{}")), "%s of %s", op, other)
		}
		for op, args := range map[string]string{"fill": "", "attach": "", "look": `,"do":"list","path":"."`, "watch": `,"Path":"/"`, "touch": "", "log": "", "stop": "", "remove": ""} {
			assert.Equal(t, tool.NotFound, tool.KindOf(a.ask(op, "", `{"Name":"`+other+`"`+args+`}`)), "%s of %s", op, other)
		}
	}
	require.NoError(t, a.ask("touch", "", `{"Name":"box"}`))
	require.NoError(t, a.ask("remove", "", `{"Name":"half"}`), "its creation was cut off")
	require.ErrorContains(t, a.ask("look", "", `{"Name":"box","do":"list","path":".","room":1000000000}`), "isn't offered")
	all, err := a.m.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 3)

	heard := a.heard()
	assert.NotContains(t, heard, filepath.Dir(a.near.CacheDir()))
	for _, id := range a.ids {
		assert.NotContains(t, heard, id)
	}
}

// TestPodsNameTheSameMissingOptionEachTime, since callers fix one after the other.
func TestPodsNameTheSameMissingOptionEachTime(t *testing.T) {
	require.NoError(t, wisbox.FitsPods(wisbox.SessionOptions{}))
	for range 50 {
		err := wisbox.FitsPods(wisbox.SessionOptions{Template: "t", Seccomp: "s", UserNS: "auto", Allow: []string{"public"}, EgressRecord: true})
		require.ErrorContains(t, err, "template isn't supported on Kubernetes yet")
		require.Equal(t, "template", tool.AsError(err).Field)
	}
}

// TestWhatAClusterSaysIsNotATenants: its names are for those who run the server.
func TestWhatAClusterSaysIsNotATenants(t *testing.T) {
	var hidden []string
	m, _ := manager(t, wisbox.Options{})
	for of, want := range map[tool.Kind]tool.Kind{
		tool.Unavailable: tool.Unavailable, tool.Permission: tool.Unavailable, tool.Limit: tool.NoSpace, tool.Closed: tool.Closed, tool.NotFound: tool.Closed,
	} {
		said := wisbox.OfCluster(tool.Errorf(of, "kubectl --context prod -n agents: Pod wisbox-id on 10.0.0.1").In("session"))
		assert.Equal(t, of, tool.KindOf(said), "users of the cluster see it")
		for _, err := range []error{said, errors.Join(said, io.EOF), tool.Errorf(of, "prod").Because(said)} {
			told := m.Told(err, "id", "box", func(err error) { hidden = append(hidden, err.Error()) })
			assert.Equal(t, want, tool.KindOf(told))
			assert.NotRegexp(t, "prod|agents|wisbox-id|10.0.0.1", told.Error())
		}
	}
	assert.Len(t, hidden, 15)
	assert.Contains(t, hidden[0], "10.0.0.1", "the server's log has it")
	killed := tool.Errorf(tool.Unavailable, "the programs of session id took all of its memory").Because(errors.Join(wisbox.ErrLost, wisbox.OfCluster(io.EOF)))
	assert.Equal(t, "unavailable: the programs of session box took all of its memory", m.Told(killed, "id", "box", nil).Error())
	require.NoError(t, m.Told(nil, "id", "box", nil))
}
