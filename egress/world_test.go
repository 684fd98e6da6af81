package egress

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/egress/policy"
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleKey) {
	case "internet":
		internet()
	case "client":
		goClient()
	}
	serverLog.SetOutput(panics{})
	goleak.VerifyTestMain(m)
}

// panics turns a panic that net/http recovers into one that ends the tests.
type panics struct{}

func (panics) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "panic") {
		panic(string(b))
	}
	return len(b), nil
}

// world imitates the Internet on the loopback: names, and servers at public addresses. The proxy checks those
// addresses; only the final connect goes elsewhere.
type world struct {
	t       testing.TB
	ca      *x509.Certificate
	key     *ecdsa.PrivateKey
	roots   *x509.CertPool
	journal *journal

	mu       sync.Mutex
	names    map[string][]string
	servers  map[string]string // public address and port -> local one
	dialed   []string
	resolved []string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, names: map[string][]string{}, servers: map[string]string{}, journal: &journal{}, roots: x509.NewCertPool()}
	var err error
	w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "the world"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, w.key.Public(), w.key)
	require.NoError(t, err)
	w.ca, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	w.roots.AddCert(w.ca)
	return w
}

func mustParse(t testing.TB, rules ...string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(allow(rules...))
	require.NoError(t, err)
	return p
}

func keyPEM(t testing.TB, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func (w *world) certificate(names ...string) tls.Certificate {
	template := &x509.Certificate{SerialNumber: serial(), DNSNames: names, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, w.ca, w.key.Public(), w.key)
	require.NoError(w.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: w.key}
}

// name makes a name resolve to addresses.
func (w *world) name(name string, addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name+"."] = addrs
}

func (w *world) LookupNetIP(_ context.Context, _, host string) (all []netip.Addr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resolved = append(w.resolved, host)
	for _, a := range w.names[host] {
		all = append(all, netip.MustParseAddr(a))
	}
	if all == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return all, nil
}

func (w *world) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	local := w.servers[address]
	w.mu.Unlock()
	if local == "" {
		<-ctx.Done() // nobody answers
		return nil, ctx.Err()
	}
	var d net.Dialer
	return d.DialContext(ctx, network, local)
}

func (w *world) seen() (resolved, dialed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.resolved), slices.Clone(w.dialed)
}

// at maps a public address to a local one.
func (w *world) at(public, local string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[public] = local
}

// address is the first name's; other names have the following ones.
const address = "93.184.216.34"

func (w *world) addressOf(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.names[name+"."]; all != nil {
		return all[0]
	}
	a := netip.MustParseAddr(address)
	for range w.names {
		a = a.Next()
	}
	w.names[name+"."] = []string{a.String()}
	return a.String()
}

// web serves a name over HTTP on port 80.
func (w *world) web(name string, handler http.HandlerFunc) {
	s := httptest.NewServer(handler)
	w.t.Cleanup(s.Close)
	w.at(w.addressOf(name)+":80", s.Listener.Addr().String())
}

// secure serves a name over TLS on port 443.
func (w *world) secure(name string, handler http.HandlerFunc) {
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{w.certificate(name)}}
	s.Config.ErrorLog = newQuiet()
	s.StartTLS()
	w.t.Cleanup(s.Close)
	w.at(w.addressOf(name)+":443", s.Listener.Addr().String())
}

// raw serves connections to one of the address's ports.
func (w *world) raw(port string, serve func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); serve(c) })
		}
	})
	w.t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	w.at(address+":"+port, l.Addr().String())
}

// box is a sandbox with a proxy.
type box struct {
	*world
	*Proxy
	addr string
}

func (w *world) box(s policy.Settings, change ...func(*Options)) *box {
	w.t.Helper()
	rules, err := policy.Parse(s)
	require.NoError(w.t, err)
	opts := &Options{
		Policy: rules, Session: "s1", Resolver: w, Dialer: w, Roots: w.roots, Journal: w.journal,
		Secret: func(name string) (string, error) { return "value-of-" + name, nil },
	}
	for _, c := range change {
		c(opts)
	}
	p, err := New(opts)
	require.NoError(w.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Serve(l) })
	w.t.Cleanup(func() { assert.NoError(w.t, p.Close()); wg.Wait() })
	return &box{w, p, l.Addr().String()}
}

func allow(rules ...string) policy.Settings { return policy.Settings{Allow: rules} }

// client returns an HTTP client in the sandbox. It trusts the world and our authorities.
func (b *box) client() *http.Client {
	b.t.Helper()
	roots := b.roots.Clone()
	roots.AppendCertsFromPEM(b.Roots())
	proxy, err := url.Parse("http://" + b.addr)
	require.NoError(b.t, err)
	tr := &http.Transport{Proxy: http.ProxyURL(proxy), TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	b.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: time.Minute, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// answer is the answer to a request.
type answer struct {
	status int
	header http.Header
	body   string
	proto  int
}

func (b *box) do(c *http.Client, method, url string, header ...string) (answer, error) {
	b.t.Helper()
	req, err := http.NewRequest(method, url, nil)
	require.NoError(b.t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), resp.ProtoMajor}, err
}

func (b *box) get(url string, header ...string) answer {
	b.t.Helper()
	a, err := b.do(b.client(), "GET", url, header...)
	require.NoError(b.t, err)
	return a
}

// dialBox opens a connection to the proxy, with a deadline.
func (b *box) dialBox() *net.TCPConn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.addr)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = c.Close() })
	require.NoError(b.t, c.SetDeadline(time.Now().Add(time.Minute)))
	return c.(*net.TCPConn)
}

// send writes raw bytes and reads one answer.
func (b *box) send(raw string) (status int, line, body string) {
	b.t.Helper()
	c := b.dialBox()
	_, err := io.WriteString(c, raw)
	require.NoError(b.t, err)
	return readAnswer(b.t, bufio.NewReader(c))
}

func readAnswer(t testing.TB, r *bufio.Reader) (status int, line, body string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, resp.Status, string(raw)
}

// tunnel opens a connection through CONNECT.
func (b *box) tunnel(target string) net.Conn {
	b.t.Helper()
	c := b.dialBox()
	_, err := io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	require.NoError(b.t, err)
	head := make([]byte, len(established))
	_, err = io.ReadFull(c, head)
	require.NoError(b.t, err)
	require.Equal(b.t, established, string(head))
	return c
}

// journal records lines.
type journal struct {
	mu    sync.Mutex
	lines []Line
	fail  error
}

func (j *journal) Append(record any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fail != nil {
		return j.fail
	}
	raw, err := json.Marshal(record)
	if err != nil {
		return err
	}
	var l Line
	if err := json.Unmarshal(raw, &l); err != nil {
		return err
	}
	j.lines = append(j.lines, l)
	return nil
}

// slowed reports whether one line says that programs wait.
func (j *journal) slowed(reason string) bool {
	return slices.ContainsFunc(j.all("slowed"), func(l Line) bool { return l.Reason == reason })
}

// all returns the lines of an event.
func (j *journal) all(event string) (all []Line) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		if l.Event == event {
			all = append(all, l)
		}
	}
	return all
}

func (j *journal) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	raw, _ := json.Marshal(j.lines)
	return string(raw)
}

// eventually polls until holds returns true.
func eventually(t testing.TB, holds func() bool, what string) {
	t.Helper()
	require.Eventually(t, holds, 30*time.Second, 2*time.Millisecond, what)
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func contains(all []string, part string) bool {
	return slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, part) })
}
