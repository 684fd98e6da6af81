package door_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/box"
	"github.com/wisbox/wisbox/internal/door"
	"github.com/wisbox/wisbox/sandbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a sandbox whose network is this machine's loopback.
type place struct {
	sandbox.Sandbox
	roots string // of its image

	mu    sync.Mutex
	files map[string][]byte
	opens []net.Addr
}

func (p *place) Run(_ context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	_, err := io.WriteString(cmd.Stdout, p.roots)
	return sandbox.Result{Status: sandbox.StatusExited}, err
}

func (p *place) KeepSecrets(_ context.Context, values map[string][]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files == nil {
		p.files = map[string][]byte{}
	}
	maps.Copy(p.files, values)
	return nil
}

func (p *place) Listen(context.Context, netip.AddrPort) (net.Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		p.mu.Lock()
		p.opens = append(p.opens, l.Addr())
		p.mu.Unlock()
	}
	return l, err
}

func (p *place) ListenPacket(context.Context, netip.AddrPort) (net.PacketConn, error) {
	return nil, fmt.Errorf("%w: no port 53 here", sandbox.ErrUnavailable)
}

func (p *place) DialAddr(context.Context, netip.AddrPort) (net.Conn, error) {
	return nil, sandbox.ErrUnsupported
}

func (p *place) DialPort(context.Context, uint16) (net.Conn, error) {
	return nil, sandbox.ErrUnsupported
}

func rules(allow ...string) door.Rules { return door.Rules{Settings: policy.Settings{Allow: allow}} }

func newDoor(t *testing.T, opts door.Options) *door.Door {
	t.Helper()
	d, err := door.New(&opts)
	require.NoError(t, err)
	return d
}

func kept(door.Rules) error { return nil }

// proxyOf returns the proxy in the environment of programs; "" if there is none.
func proxyOf(d *door.Door) string {
	for _, pair := range d.Env() {
		if value, ok := strings.CutPrefix(pair, "http_proxy="); ok {
			return value
		}
	}
	return ""
}

// ask sends a request to a host through the proxy and returns the status.
func ask(t *testing.T, proxy, host string) int {
	t.Helper()
	u, err := url.Parse(proxy)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}
	resp, err := client.Get("http://" + host + "/")
	require.NoError(t, err)
	resp.Body.Close()
	return resp.StatusCode
}

func closed(t *testing.T, proxy string) {
	t.Helper()
	_, err := net.Dial("tcp", strings.TrimPrefix(proxy, "http://"))
	require.Error(t, err)
}

func TestWithoutARuleThereIsNoDoor(t *testing.T) {
	d, p := newDoor(t, door.Options{}), &place{}
	require.NoError(t, d.Prepare(t.Context(), p))
	require.Empty(t, d.Env())
	require.Empty(t, p.opens)
	require.Empty(t, p.files)
	require.False(t, d.Opens(t.Context()))
	require.Empty(t, d.DeniedSince(d.Mark()))
}

// TestTheProblemSaysItsCause: the sandbox is older than the first rule, or the machine has no port 53 for sandboxes.
func TestTheProblemSaysItsCause(t *testing.T) {
	d, p := newDoor(t, door.Options{Session: "box"}), &place{}
	require.NoError(t, d.Prepare(t.Context(), p))
	require.NoError(t, d.Change(t.Context(), []string{"example.com"}, nil, func(door.Rules) error { return nil }))
	require.NoError(t, d.Prepare(t.Context(), p))
	view, err := d.View(t.Context())
	require.NoError(t, err)
	require.Contains(t, view.Problem, "made before the first rule; `wisbox stop box`")
	require.NotContains(t, view.Problem, "port 53")
	other := &place{}
	require.NoError(t, d.Prepare(t.Context(), other))
	defer d.Left(other)
	view, err = d.View(t.Context())
	require.NoError(t, err)
	require.Contains(t, view.Problem, "this host gives sandboxes no port 53; wisbox doctor")
	require.NotContains(t, view.Problem, "first rule")
}

func TestADoorOpensWithItsSandboxAndClosesWithIt(t *testing.T) {
	d, one, other := newDoor(t, door.Options{Rules: rules("example.com")}), &place{}, &place{}
	require.Empty(t, d.Env(), "nothing before the first program")
	require.NoError(t, d.Prepare(t.Context(), one))
	require.NoError(t, d.Prepare(t.Context(), one))
	require.Len(t, one.opens, 1, "once")
	first := proxyOf(d)
	d.Left(other)
	require.Equal(t, http.StatusForbidden, ask(t, first, "other.example.net"), "another sandbox's end is nothing to it")
	require.NoError(t, d.Prepare(t.Context(), other))
	closed(t, first)
	require.Equal(t, http.StatusForbidden, ask(t, proxyOf(d), "other.example.net"))
	view, err := d.View(t.Context())
	require.NoError(t, err)
	require.Len(t, view.Denied, 2, "those of the former sandbox are listed too")
	require.False(t, view.Transparent)
	require.NotEmpty(t, view.Problem)
	last := proxyOf(d)
	d.Left(other)
	closed(t, last)
	require.Empty(t, d.Env())
}

func TestACallIsToldItsOwnDenials(t *testing.T) {
	d := newDoor(t, door.Options{Rules: rules("example.com"), Session: "box"})
	p := &place{}
	require.NoError(t, d.Prepare(t.Context(), p))
	defer d.Left(p)
	ask(t, proxyOf(d), "before.example.net")
	mark := d.Mark()
	require.Empty(t, d.DeniedSince(mark))
	for i := range 7 {
		ask(t, proxyOf(d), fmt.Sprintf("host%d.example.net", i))
	}
	denied := d.DeniedSince(mark)
	require.Len(t, denied, 5)
	require.Equal(t, "host6.example.net:80: no rule allows it; to allow it: wisbox allow box host6.example.net:80", denied[4])
}

// TestADoorRemembersWhatWasBeforeIt: another process continues with the bounds and the record.
func TestADoorRemembersWhatWasBeforeIt(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })}
	go func() { _ = web.Serve(server) }()
	defer web.Close()
	port := server.Addr().(*net.TCPAddr).Port
	var kept door.Memory
	keep := func(m door.Memory) { kept = m }
	opts := door.Options{Rules: rules(fmt.Sprintf("host:%d,1", port)), Journal: lines{}, Keep: keep}
	opts.Rules.Record = true
	one, p := newDoor(t, opts), &place{}
	require.NoError(t, one.Prepare(t.Context(), p))
	require.Equal(t, http.StatusOK, ask(t, proxyOf(one), fmt.Sprintf("host.wisbox:%d", port)))
	one.Left(p)
	require.Positive(t, kept.Traffic.In)
	require.Equal(t, []string{fmt.Sprintf("host:%d", port)}, kept.Recorded)

	opts.Before = kept
	two := newDoor(t, opts)
	view, err := two.View(t.Context())
	require.NoError(t, err)
	require.Equal(t, kept.Traffic, view.Traffic)
	require.Equal(t, kept.Recorded, view.Recorded)
	first := kept.Traffic.In
	require.NoError(t, two.Prepare(t.Context(), p))
	require.Equal(t, http.StatusOK, ask(t, proxyOf(two), fmt.Sprintf("host.wisbox:%d", port)))
	two.Left(p)
	require.Equal(t, 2*first, kept.Traffic.In)

	opts.Before.Traffic.Out = 64 << 20
	for out, status := range map[int64]int{0: http.StatusForbidden, 1 << 20: http.StatusForbidden, 128 << 20: http.StatusOK} {
		opts.Rules.Out = out
		three := newDoor(t, opts)
		require.NoError(t, three.Prepare(t.Context(), p))
		require.Equal(t, status, ask(t, proxyOf(three), fmt.Sprintf("host.wisbox:%d", port)), "of %d bytes", out)
		three.Left(p)
	}
}

// lines is a journal that accepts everything.
type lines struct{}

func (lines) Append(any) error { return nil }

func TestRulesChangeWhileTheDoorIsOpen(t *testing.T) {
	d, p := newDoor(t, door.Options{Rules: rules("example.com")}), &place{}
	require.NoError(t, d.Prepare(t.Context(), p))
	var saved door.Rules
	require.NoError(t, d.Change(t.Context(), []string{"more.example.net"}, nil, func(r door.Rules) error { saved = r; return nil }))
	require.Equal(t, []string{"example.com", "more.example.net"}, saved.Allow)

	var wrong *door.RuleError
	require.ErrorAs(t, d.Change(t.Context(), []string{"no..name"}, nil, kept), &wrong)
	full := errors.New("the disk is full")
	require.ErrorIs(t, d.Change(t.Context(), nil, []string{"example.com"}, func(door.Rules) error { return full }), full)
	view, err := d.View(t.Context())
	require.NoError(t, err)
	require.Equal(t, saved.Allow, view.Allow, "a change that can't be stored isn't made")
	require.Empty(t, view.Deny)

	proxy := proxyOf(d)
	require.NoError(t, d.Change(t.Context(), nil, []string{"example.com", "more.example.net"}, kept))
	closed(t, proxy)
	require.Empty(t, d.Env(), "without a rule that allows there is no listener")
	require.NoError(t, d.Replace(t.Context(), []string{"other.example.net"}, []string{"no.example.net"}, func(r door.Rules) error { saved = r; return nil }))
	assert.Equal(t, []string{"other.example.net"}, saved.Allow)
	assert.Equal(t, []string{"no.example.net"}, saved.Deny)
	require.ErrorAs(t, d.Replace(t.Context(), []string{"no..name"}, nil, kept), &wrong)
	require.NoError(t, d.Change(t.Context(), []string{"example.com"}, nil, kept))
	require.NoError(t, d.Prepare(t.Context(), p))
	require.Equal(t, http.StatusForbidden, ask(t, proxyOf(d), "more.example.net"))
	d.Left(p)
}

func TestASandboxWithoutANetworkIsRefused(t *testing.T) {
	d := newDoor(t, door.Options{Rules: rules("example.com")})
	require.ErrorIs(t, d.Prepare(t.Context(), struct{ sandbox.Sandbox }{}), sandbox.ErrUnsupported)
	require.Empty(t, d.Env())
}

func TestAnInjectionWithoutItsSecretStartsNothing(t *testing.T) {
	r := rules("example.com")
	r.Inject = []string{"example.com:X-Key=TOK"}
	d := newDoor(t, door.Options{Rules: r, Secret: func(string) (string, error) { return "", errors.New("it is gone") }})
	p := &place{}
	require.ErrorContains(t, d.Prepare(t.Context(), p), "it is gone")
	require.Empty(t, p.opens)
	require.Equal(t, []string{"TOK"}, r.Secrets())
}

// TestProgramsTrustTheirImagesAndOurCertificates: ours first, each once.
func TestProgramsTrustTheirImagesAndOurCertificates(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "/dev/null/none")
	r := rules("api.example.com")
	r.Inject = []string{"api.example.com:X-Key=TOK,env=KEY"}
	d := newDoor(t, door.Options{Rules: r, Secret: func(string) (string, error) { return "a value", nil }, Own: map[string]string{"PIP_CERT": "mine"}})
	first := &place{}
	require.NoError(t, d.Prepare(t.Context(), first))
	one := first.files["wisbox-ca.pem"]
	require.Contains(t, string(one), "BEGIN CERTIFICATE")
	p := &place{roots: "no certificate\n" + string(one) + string(one)}
	require.NoError(t, d.Prepare(t.Context(), p))
	defer d.Left(p)
	got := p.files["wisbox-ca.pem"]
	begins := func(pem []byte) int { return bytes.Count(pem, []byte("BEGIN")) }
	require.Equal(t, begins(one)+1, begins(got), "its own new one, and those that were there, once each")
	require.Contains(t, d.Env(), "SSL_CERT_FILE=/run/secrets/wisbox-ca.pem")
	require.Contains(t, d.Env(), "SYSTEM_WGETRC=/run/secrets/wisbox-wgetrc")
	require.Contains(t, d.Env(), "APT_CONFIG=/run/secrets/wisbox-apt.conf")
	require.Equal(t, "ca_certificate = /run/secrets/wisbox-ca.pem\n", string(p.files["wisbox-wgetrc"]))
	for name := range p.files {
		require.True(t, strings.HasPrefix(name, box.OwnPrefix), "no secret may have the name %s", name)
	}
	require.True(t, slices.Contains(d.Env(), "KEY=wisbox-placeholder-TOK"))
	require.NotContains(t, strings.Join(d.Env(), "\n"), "PIP_CERT", "the session's own wins")
}

func TestBadRulesNameTheirPart(t *testing.T) {
	for text, r := range map[string]door.Rules{
		`allow "1.2.3.4"`: rules("1.2.3.4"), `deny "*"`: {Settings: policy.Settings{Deny: []string{"*"}}}, `egress_via "ftp://x"`: {Via: "ftp://x"},
		"egress_out is 1 bytes": {Out: 1}, "egress_out is 1099511627777": {Out: 1<<40 + 1}, `egress_via can't`: {Via: "http://u:secret@%zz"},
	} {
		_, err := door.New(&door.Options{Rules: r})
		require.ErrorContains(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

// TestADoorStandsManyCallersAtOnce checks that nothing stays open.
func TestADoorStandsManyCallersAtOnce(t *testing.T) {
	d := newDoor(t, door.Options{Rules: rules("example.com")})
	places := []*place{{}, {}, {}}
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			p := places[i%3]
			defer d.Begin("call")()
			assert.NoError(t, d.Prepare(t.Context(), p))
			mark := d.Mark()
			_ = d.Env()
			_, err := d.View(t.Context())
			assert.NoError(t, err)
			assert.NoError(t, d.Change(t.Context(), []string{fmt.Sprintf("h%d.example.com", i)}, nil, kept))
			_ = d.DeniedSince(mark)
			d.Left(p)
		})
	}
	all.Wait()
	for _, p := range places {
		d.Left(p)
		for _, addr := range p.opens {
			_, err := net.DialTimeout("tcp", addr.String(), time.Second)
			assert.Error(t, err)
		}
	}
}
