package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/wisbox/wisbox/egress/policy"
)

// inner imitates a network namespace on the loopback: its addresses map to local ports.
type inner struct {
	mu    sync.Mutex
	local map[string]string // address inside -> address here
	taken map[string]bool   // in use by programs inside
}

func newInner() *inner { return &inner{local: map[string]string{}, taken: map[string]bool{}} }

type innerListener struct {
	net.Listener
	addr net.Addr
	gone func()
}

func (l innerListener) Addr() net.Addr { return l.addr }
func (l innerListener) Close() error   { l.gone(); return l.Listener.Close() }

func (n *inner) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken[address] || n.local[address] != "" {
		return nil, errors.New("address already in use")
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n.local[address] = l.Addr().String()
	addr, err := net.ResolveTCPAddr(network, address)
	return innerListener{l, addr, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.local[address] == l.Addr().String() {
			delete(n.local, address)
		}
	}}, err
}

func (n *inner) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken[address] {
		return nil, errors.New("address already in use")
	}
	var lc net.ListenConfig
	pc, err := lc.ListenPacket(ctx, network, "127.0.0.1:0")
	if err == nil {
		n.local[address] = pc.LocalAddr().String()
	}
	return pc, err
}

// DialAddr reaches what a test registered with serve.
func (n *inner) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	local := n.local[addr.String()]
	n.mu.Unlock()
	if local == "" {
		return nil, fmt.Errorf("%s: %w", addr, syscall.ECONNREFUSED)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", local)
}

// serve makes a server here one of a program inside.
func (n *inner) serve(address, local string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.local[address] = local
}

// dial connects to an address inside.
func (n *inner) dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	local := n.local[address]
	n.mu.Unlock()
	if local == "" {
		return nil, fmt.Errorf("connection refused: %s", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, local)
}

// resolver returns a resolver like that of a program inside: it queries 127.0.0.1:53.
func (n *inner) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return n.dial(ctx, "udp", "127.0.0.1:53")
	}}
}

// client returns an HTTP client without a proxy.
func (n *inner) client(t testing.TB, roots *x509.CertPool) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		addrs, err := n.resolver().LookupNetIP(ctx, "ip4", host)
		if err != nil {
			return nil, err
		}
		return n.dial(ctx, "tcp", net.JoinHostPort(addrs[0].Unmap().String(), port))
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute}
}

func (w *world) started(s policy.Settings, change ...func(*Options)) (*box, *inner, Places) {
	w.t.Helper()
	b, n := w.box(s, change...), newInner()
	places, err := b.Start(w.t.Context(), n)
	require.NoError(w.t, err)
	return b, n, places
}

func TestProgramsThatKnowNoProxyReachAllowedHosts(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("plain"))
	w.secure("example.com", text("secure"))
	w.secure("api.example.com", echo)
	b, n, places := w.started(injected("api.example.com:Authorization=KEY"))
	assert.Equal(t, "http://127.0.0.1:3128", places.Proxy)
	assert.True(t, places.Transparent)
	roots := w.roots.Clone()
	roots.AppendCertsFromPEM(b.Roots())
	c := n.client(t, roots)
	for url, want := range map[string]string{"http://example.com/": "plain", "https://example.com/": "secure", "https://api.example.com/": `auth="value-of-KEY"`} {
		a, err := b.do(c, "GET", url)
		require.NoError(t, err, url)
		assert.Contains(t, a.body, want, url)
	}
	_, err := b.do(c, "GET", "https://other.example.com/")
	assert.ErrorContains(t, err, "no such host")
	last, _ := b.Denied(0)
	require.Len(t, last, 1)
	assert.Equal(t, "wisbox allow s1 other.example.com:443", last[0].Allow)
	resolved, _ := w.seen()
	assert.False(t, contains(resolved, "other"), "a name that isn't allowed is resolved nowhere")
}

func TestANameIsResolvedOnlyWhenAProgramConnects(t *testing.T) {
	w := newWorld(t)
	_, n, _ := w.started(allow("*.example.org"))
	for i := range 20 {
		addrs, err := n.resolver().LookupNetIP(t.Context(), "ip", fmt.Sprintf("data%d.example.org", i))
		require.NoError(t, err)
		assert.Len(t, addrs, 1)
		assert.Equal(t, fmt.Sprintf("127.16.0.%d", i+1), addrs[0].Unmap().String())
	}
	resolved, dialed := w.seen()
	assert.Empty(t, resolved)
	assert.Empty(t, dialed)
}

func TestWhatATransparentConnectionSaysMustBeForItsName(t *testing.T) {
	w := newWorld(t)
	w.web("example.com", text("plain"))
	w.secure("example.com", text("secure"))
	w.secure("other.example.com", text("other"))
	w.web("other.example.com", text("other"))
	b, n, _ := w.started(allow("example.com", "other.example.com"))
	c := n.client(t, w.roots)
	a, err := b.do(c, "GET", "http://example.com/", "Host", "other.example.com")
	require.NoError(t, err)
	assert.Equal(t, 421, a.status)
	addrs, err := n.resolver().LookupNetIP(t.Context(), "ip4", "example.com")
	require.NoError(t, err)
	for _, config := range []*tls.Config{{ServerName: "other.example.com"}, {InsecureSkipVerify: true}} {
		raw, err := n.dial(t.Context(), "tcp", addrs[0].Unmap().String()+":443")
		require.NoError(t, err)
		err = tls.Client(raw, config).Handshake()
		assert.ErrorContains(t, err, "reset")
		_ = raw.Close()
	}
	for _, raw := range []string{"GET http://other.example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n", "CONNECT other.example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n"} {
		conn, err := n.dial(t.Context(), "tcp", addrs[0].Unmap().String()+":80")
		require.NoError(t, err)
		_, err = io.WriteString(conn, raw)
		require.NoError(t, err)
		status, _, _ := readAnswer(t, bufio.NewReader(conn))
		assert.Contains(t, []int{400, 421}, status)
		_ = conn.Close()
	}
}

func TestATransparentTCPRuleLetsTheServerSpeakFirst(t *testing.T) {
	w := newWorld(t)
	w.name("db.example.com", address)
	w.raw("5432", func(c net.Conn) { _, _ = io.WriteString(c, "hello") })
	_, n, _ := w.started(allow("tcp:db.example.com:5432"))
	addrs, err := n.resolver().LookupNetIP(t.Context(), "ip4", "DB.example.com")
	require.NoError(t, err)
	c, err := n.dial(t.Context(), "tcp", addrs[0].Unmap().String()+":5432")
	require.NoError(t, err)
	defer c.Close()
	raw, err := io.ReadAll(c)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(raw))
	_, err = n.dial(t.Context(), "tcp", addrs[0].Unmap().String()+":443")
	assert.Error(t, err, "only the rule's ports")
}

func TestATransparentServerThatMayNotBeReachedIsAReset(t *testing.T) {
	w := newWorld(t)
	w.name("example.com", "10.0.0.1")
	b, n, _ := w.started(allow("example.com"))
	_, err := b.do(n.client(t, w.roots), "GET", "https://example.com/")
	assert.ErrorContains(t, err, "reset")
	a, err := b.do(n.client(t, w.roots), "GET", "http://example.com/")
	require.NoError(t, err)
	assert.Equal(t, 403, a.status)
}

func TestAPortThatAProgramHasIsPassedOver(t *testing.T) {
	w := newWorld(t)
	b, n := w.box(allow("example.com")), newInner()
	n.taken["127.0.0.1:3128"], n.taken["127.0.0.1:3129"], n.taken["127.0.0.1:53"] = true, true, true
	places, err := b.Start(t.Context(), n)
	require.NoError(t, err)
	assert.Equal(t, "http://127.0.0.1:3130", places.Proxy)
	assert.False(t, places.Transparent)
	assert.ErrorContains(t, places.Problem, "in use")
	for port := range proxyPorts {
		n.taken[fmt.Sprintf("127.0.0.1:%d", proxyPort+port)] = true
	}
	_, err = w.box(allow("example.com")).Start(t.Context(), n)
	assert.ErrorContains(t, err, "in use")
}

func TestWithoutARuleThereIsNoListener(t *testing.T) {
	n := newInner()
	_, err := newWorld(t).box(policy.Settings{Deny: []string{"example.com"}}).Start(t.Context(), n)
	assert.ErrorContains(t, err, "no rule allows anything")
	assert.Empty(t, n.local)
}

func TestNamesAreBoundedAndThoseOfOldRulesGo(t *testing.T) {
	w := newWorld(t)
	b, n, _ := w.started(allow("*.example.org", "example.com"), func(o *Options) { o.Bounds.Names, o.Bounds.Queries = 3, 1000 })
	lookup := func(name string) error {
		_, err := n.resolver().LookupNetIP(t.Context(), "ip4", name)
		return err
	}
	for _, name := range []string{"a.example.org", "b.example.org", "example.com"} {
		require.NoError(t, lookup(name))
	}
	assert.Error(t, lookup("c.example.org"), "no more while those may be used")
	b.Proxy.names.mu.Lock()
	b.Proxy.names.all["a.example.org"].asked = time.Now().Add(-2 * answerFor)
	b.Proxy.names.mu.Unlock()
	assert.NoError(t, lookup("c.example.org"), "the oldest gives way")
	less, err := policy.Parse(allow("example.com"))
	require.NoError(t, err)
	require.NoError(t, b.SetPolicy(less))
	n.mu.Lock()
	for address := range n.local {
		assert.Regexp(t, `^127\.0\.0\.1:|^127\.16\.0\.3:`, address, "listeners of old rules are closed")
	}
	assert.Len(t, n.local, 2+2)
	n.mu.Unlock()
	assert.Error(t, lookup("b.example.org"))
}

// ask sends a query unchanged.
func ask(t testing.TB, p *Proxy, change func(*dnsmessage.Message)) (dnsmessage.Message, bool) {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("example.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}
	change(&m)
	raw, err := m.Pack()
	require.NoError(t, err)
	answer := p.answerQuery(raw)
	if answer == nil {
		return m, false
	}
	var got dnsmessage.Message
	require.NoError(t, got.Unpack(answer))
	return got, true
}

func TestTheNameServerAnswersWhatAProgramMayKnow(t *testing.T) {
	w := newWorld(t)
	b, _, _ := w.started(allow("example.com", "host:80"))
	question := func(name string, of dnsmessage.Type) func(*dnsmessage.Message) {
		return func(m *dnsmessage.Message) {
			m.Questions[0].Name, m.Questions[0].Type = dnsmessage.MustNewName(name), of
		}
	}
	for _, c := range []struct {
		name    string
		of      dnsmessage.Type
		code    dnsmessage.RCode
		answers int
	}{
		{"eXample.COM.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"host.wisbox.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"example.com.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 0},
		{"example.com.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
		{"example.com.", 65, dnsmessage.RCodeSuccess, 0},
		{"example.org.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"www.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"1.0.16.127.in-addr.arpa.", dnsmessage.TypePTR, dnsmessage.RCodeNameError, 0},
		{".", dnsmessage.TypeNS, dnsmessage.RCodeNameError, 0},
		{"a\\b.example.com.", dnsmessage.TypeA, dnsmessage.RCodeNameError, 0},
		{"localhost.", dnsmessage.TypeA, dnsmessage.RCodeSuccess, 1},
		{"localhost.", dnsmessage.TypeAAAA, dnsmessage.RCodeSuccess, 1},
		{"localhost.", dnsmessage.TypeTXT, dnsmessage.RCodeSuccess, 0},
	} {
		m, ok := ask(t, b.Proxy, question(c.name, c.of))
		require.True(t, ok)
		assert.Equal(t, c.code, m.RCode, "%s %s", c.name, c.of)
		assert.Len(t, m.Answers, c.answers, "%s %s", c.name, c.of)
		assert.Equal(t, c.name, m.Questions[0].Name.String(), "as it was asked")
		assert.EqualValues(t, 7, m.ID)
	}
	_, ok := ask(t, b.Proxy, func(m *dnsmessage.Message) { m.Response = true })
	assert.False(t, ok, "an answer isn't answered")
	m, _ := ask(t, b.Proxy, func(m *dnsmessage.Message) { m.Questions = nil })
	assert.Equal(t, dnsmessage.RCodeFormatError, m.RCode)
	m, _ = ask(t, b.Proxy, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) })
	assert.Equal(t, dnsmessage.RCodeFormatError, m.RCode)
	m, _ = ask(t, b.Proxy, func(m *dnsmessage.Message) { m.OpCode = 5 })
	assert.Equal(t, dnsmessage.RCodeNotImplemented, m.RCode)
	m, _ = ask(t, b.Proxy, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS })
	assert.Equal(t, dnsmessage.RCodeNotImplemented, m.RCode)
}

// queries is a socket that receives a query several times.
type queries struct {
	net.PacketConn
	query    []byte
	left     int
	answered int
}

func (q *queries) ReadFrom(b []byte) (int, net.Addr, error) {
	if q.left--; q.left < 0 {
		return 0, nil, net.ErrClosed
	}
	return copy(b, q.query), &net.UDPAddr{}, nil
}

func (q *queries) WriteTo(b []byte, _ net.Addr) (int, error) { q.answered++; return len(b), nil }
func (q *queries) Close() error                              { return nil }

// TestQueriesBeyondTheBoundWait: a resolver that gets no answer stalls for seconds.
func TestQueriesBeyondTheBoundWait(t *testing.T) {
	w := newWorld(t)
	b := w.box(allow("example.com"), func(o *Options) { o.Bounds.Queries = 5 })
	m := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("localhost."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	raw, err := m.Pack()
	require.NoError(t, err)
	flood := &queries{query: raw, left: 8}
	began := time.Now()
	assert.ErrorIs(t, b.ServeDNS(flood), net.ErrClosed)
	assert.Equal(t, 8, flood.answered)
	assert.Greater(t, time.Since(began), 300*time.Millisecond, "5 come at once, the others 5 a second")
	slowed := w.journal.all("slowed")
	require.Len(t, slowed, 1)
	assert.Equal(t, "more than 5 DNS queries a second; they wait", slowed[0].Reason)
	long := &queries{query: make([]byte, 4000), left: 5}
	assert.ErrorIs(t, b.ServeDNS(long), net.ErrClosed)
	assert.Equal(t, 5, long.answered, "an error is an answer too")
}

func FuzzAQueryGetsNoOtherAnswerThanItsOwn(f *testing.F) {
	w := newWorld(f)
	rules, err := policy.Parse(allow("example.com", "*.example.org"))
	require.NoError(f, err)
	p, err := New(&Options{Policy: rules, Resolver: w, Dialer: w})
	require.NoError(f, err)
	f.Cleanup(func() { _ = p.Close() })
	p.names.network = newInner()
	for _, name := range []string{"example.com.", "a.example.org.", "localhost.", "other.example.net."} {
		m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
		raw, err := m.Pack()
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, query []byte) {
		raw := p.answerQuery(query[:min(len(query), maxQuery)])
		if raw == nil {
			return
		}
		assert.LessOrEqual(t, len(raw), 12+255+4+2+255+30)
		var m dnsmessage.Message
		require.NoError(t, m.Unpack(raw))
		assert.Equal(t, query[:2], raw[:2])
		assert.True(t, m.Response)
		for _, a := range m.Answers {
			name := strings.ToLower(a.Header.Name.String())
			switch body := a.Body.(type) {
			case *dnsmessage.AResource:
				if strings.HasSuffix(name, "localhost.") {
					assert.Equal(t, [4]byte{127, 0, 0, 1}, body.A)
					continue
				}
				assert.Equal(t, []byte{127, 16}, body.A[:2])
				assert.True(t, name == "example.com." || strings.HasSuffix(name, ".example.org."), name)
			case *dnsmessage.AAAAResource:
				assert.True(t, strings.HasSuffix(name, "localhost."))
			}
		}
		resolved, _ := w.seen()
		assert.Empty(t, resolved)
	})
}

// failing is a listener whose Accept fails in some ways, one after the other.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, err
}

func TestAListenerOutlivesALackOfDescriptors(t *testing.T) {
	b := newWorld(t).box(allow("example.com"))
	lack := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	l := &failing{errs: []error{lack, lack, net.ErrClosed}}
	b.serveName(l, "example.com", 443)
	assert.Empty(t, l.errs)
	l = &failing{errs: []error{errors.New("broken"), nil}}
	b.serveName(l, "example.com", 443)
	assert.Len(t, l.errs, 1)
}
