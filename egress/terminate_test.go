package egress

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
)

// echo answers with the request.
func echo(rw http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(rw, "%s %s %s auth=%q key=%q", r.Method, r.Host, r.URL.RequestURI(), r.Header.Get("Authorization"), r.Header["X-Key"])
	for name := range r.Header {
		_, _ = fmt.Fprintf(rw, " [%s]", name)
	}
}

func injected(lines ...string) policy.Settings {
	return policy.Settings{Allow: []string{"api.example.com", "example.com"}, Inject: lines}
}

func TestASecretIsAddedOutsideOfTheSandbox(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", echo)
	b := w.box(injected("api.example.com:Authorization=Bearer KEY", "api.example.com:X-Key=other,path=/keys/"))
	a := b.get("https://api.example.com/x?y=1", "Proxy-Authorization", "mine")
	assert.Equal(t, 200, a.status)
	assert.Contains(t, a.body, `GET api.example.com /x?y=1 auth="Bearer value-of-KEY" key=[]`)
	assert.NotContains(t, a.body, "[Proxy-Authorization]")
	assert.Equal(t, 2, a.proto, "HTTP/2 inside")
	assert.Contains(t, b.get("https://api.example.com/keys/1").body, `key=["value-of-other"]`)
	a = b.get("https://api.example.com/keys/1", "Authorization", "Bearer forged", "X-Key", "forged", "x_key", "forged")
	assert.Contains(t, a.body, `auth="Bearer value-of-KEY" key=["value-of-other"]`, "our value replaces the program's")
	assert.NotContains(t, a.body, "X_key")
	assert.NotContains(t, w.journal.text(), "value-of")
	eventually(t, func() bool { return len(w.journal.all("request")) == 3 }, "each request is in the log")
	l := w.journal.all("request")[0]
	assert.Equal(t, []any{"GET", "/x", 200, "https", "api.example.com"}, []any{l.Method, l.Path, l.Status, l.Kind, l.Rule})
}

// TestASecretGoesAlone: a program can't use the host with a key of its own.
func TestASecretGoesAlone(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", echo)
	own := []string{"Authorization", "Bearer mine", "Cookie", "session=mine", "x_api_key", "mine", "X-Goog-Api-Key", "mine", "X-Trace", "kept"}
	b := w.box(injected("api.example.com:X-Key=KEY,alone=yes"))
	own = append(own, "Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key.mine")
	a := b.get("https://api.example.com/v1?a=1&key=mine&%6bey=mine&b=2;Access_Token=mine&$key=mine&%24httpHeaders=X-Goog-Api-Key:mine&upload_id=mine&c=%20", own...)
	assert.Contains(t, a.body, `GET api.example.com /v1?a=1&c=%20 auth="" key=["value-of-KEY"]`)
	assert.Contains(t, a.body, "[X-Trace]")
	for _, name := range []string{"Cookie", "X_api_key", "X-Goog-Api-Key", "Sec-Websocket-Protocol"} {
		assert.NotContains(t, a.body, "["+name+"]")
	}
	one := w.box(injected("api.example.com:Authorization=Bearer KEY,env=API_KEY,alone=yes"))
	beside := base64.StdEncoding.EncodeToString([]byte(one.Policy().Injections()[0].Placeholder() + ":mine"))
	assert.Contains(t, one.get("https://api.example.com/", "Authorization", "Basic "+beside).body, `auth="Bearer value-of-KEY"`, "the whole header")
	two := w.box(injected("api.example.com:Authorization=KEY,alone=yes", "api.example.com:X-Api-Key=other,alone=yes"))
	a = two.get("https://api.example.com/v1", own...)
	assert.Contains(t, a.body, `auth="value-of-KEY"`)
	assert.Contains(t, a.body, "[X-Api-Key]")
	other := w.box(injected("api.example.com:X-Key=KEY"))
	assert.Contains(t, other.get("https://api.example.com/v1?key=mine", own...).body, `/v1?key=mine auth="Bearer mine"`, "only if it is asked for")
}

func TestAPlaceholderIsReplacedWhereItStands(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", echo)
	b := w.box(injected("api.example.com:Authorization=KEY,env=API_KEY"))
	mine := b.Policy().Injections()[0].Placeholder()
	assert.Contains(t, b.get("https://api.example.com/", "Authorization", "token "+mine).body, `auth="token value-of-KEY"`)
	basic := func(text string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(text)) }
	assert.Contains(t, b.get("https://api.example.com/", "Authorization", basic("git:"+mine)).body, `auth="`+basic("git:value-of-KEY"))
	assert.Contains(t, b.get("https://api.example.com/", "Authorization", "Basic ???").body, `auth="value-of-KEY"`)
	a := b.get("https://api.example.com/"+mine, "X-Key", mine)
	assert.Contains(t, a.body, "/"+mine, "no other place than the header")
	assert.Contains(t, a.body, `key=["`+mine)
}

func TestASecretGoesOverVerifiedTLSOnly(t *testing.T) {
	w := newWorld(t)
	w.web("api.example.com", echo)
	w.secure("api.example.com", echo)
	b := w.box(injected("api.example.com:Authorization=KEY"))
	a := b.get("http://api.example.com/")
	assert.Equal(t, 200, a.status)
	assert.Contains(t, a.body, `auth=""`)

	stranger := newWorld(t)
	b = stranger.box(injected("api.example.com:Authorization=KEY"), func(o *Options) { o.Resolver, o.Dialer = w, w })
	a = b.get("https://api.example.com/")
	assert.Equal(t, 502, a.status)
	assert.Contains(t, a.body, "failed to verify certificate")
	assert.NotContains(t, a.body, "value-of")
}

func TestWhatTheRuleDoesNotPermitIsRefused(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", echo)
	w.web("api.example.com", echo)
	b := w.box(injected("api.example.com:Authorization=KEY,methods=GET|HEAD,path=/v1/"))
	assert.Equal(t, 200, b.get("https://api.example.com/v1/x", "X-HTTP-Method-Override", "DELETE", "X_Http_Method", "DELETE").status)
	for _, scheme := range []string{"https", "http"} { // the restrictions apply to the host
		for _, request := range []string{"POST /v1/x", "DELETE /v1/x", "GET /v2", "GET /v1/..%2fv2", "GET /v1/%2e%2e/v2", "GET /v1;/x", "GET //v1/", "TRACE /v1/x", "FOO /v1/"} {
			method, path, _ := strings.Cut(request, " ")
			a, err := b.do(b.client(), method, scheme+"://api.example.com"+path)
			require.NoError(t, err)
			assert.Equal(t, 403, a.status, request)
			assert.NotContains(t, a.body, "to allow it")
		}
	}
	a := b.get("https://api.example.com/v1/x", "X-HTTP-Method-Override", "DELETE", "X_Http_Method", "DELETE", "X-Original-URL", "/v2")
	assert.NotContains(t, a.body, "[X-Http-Method-Override]")
	assert.NotContains(t, a.body, "X_Http_Method")
	assert.NotContains(t, a.body, "X-Original-Url")

	free := w.box(injected("api.example.com:Authorization=KEY"))
	a, err := free.do(free.client(), "TRACE", "https://api.example.com/")
	require.NoError(t, err)
	assert.Equal(t, 403, a.status, "it would show the secret")
}

func TestABoundedRulePermitsNoUpgrade(t *testing.T) {
	w := newWorld(t)
	w.web("api.example.com", echo)
	b := w.box(injected("api.example.com:Authorization=KEY,methods=GET"))
	status, _, body := b.send("GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
	assert.Equal(t, 403, status)
	assert.Contains(t, body, "which a WebSocket would bypass")
}

// inside opens a TLS connection to a terminated host.
func (b *box) inside(host string, config *tls.Config) (*tls.Conn, error) {
	b.t.Helper()
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AppendCertsFromPEM(b.Roots())
	c := tls.Client(b.tunnel(host+":443"), config)
	return c, c.Handshake()
}

func TestEachRequestInsideIsForTheHostOfTheConnect(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", echo)
	w.secure("example.com", text("another site"))
	b := w.box(injected("api.example.com:Authorization=KEY"))
	for raw, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: api.example.com\r\n\r\n":                        200,
		"GET / HTTP/1.1\r\nHost: API.example.com.:443\r\n\r\n":                   200,
		"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n":                            421,
		"GET / HTTP/1.1\r\nHost: api.example.com:80\r\n\r\n":                     421,
		"GET / HTTP/1.1\r\nHost: api.example.com:x\r\n\r\n":                      421,
		"GET / HTTP/1.1\r\nHost: \r\n\r\n":                                       421,
		"GET / HTTP/1.0\r\n\r\n":                                                 200,
		"GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n": 200,
		"GET https://example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":     421,
		"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":  400,
		"GET http://example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n":      400,
		"CONNECT example.com:443 HTTP/1.1\r\nHost: api.example.com\r\n\r\n":      400,
	} {
		c, err := b.inside("api.example.com", &tls.Config{ServerName: "api.example.com"})
		require.NoError(t, err)
		_, err = io.WriteString(c, raw)
		require.NoError(t, err)
		status, _, body := readAnswer(t, bufio.NewReader(c))
		assert.Equal(t, want, status, "%s: %s", raw, body)
		require.NoError(t, c.Close())
	}
	client := b.client()
	a, err := b.do(client, "GET", "https://api.example.com/", "Host", "example.com")
	require.NoError(t, err)
	assert.Equal(t, []int{421, 2}, []int{a.status, a.proto})
	for _, sni := range []string{"example.com", "other.example.com"} {
		_, err := b.inside("api.example.com", &tls.Config{ServerName: sni})
		assert.Error(t, err, sni)
	}
	_, err = b.inside("api.example.com", &tls.Config{InsecureSkipVerify: true})
	assert.Error(t, err, "no SNI")
	last, _ := b.Denied(0)
	assert.Contains(t, last[len(last)-1].Reason, "names no host")
}

func TestOurAuthorityCanBeNoOtherHost(t *testing.T) {
	w := newWorld(t)
	b := w.box(injected("api.example.com:Authorization=KEY"))
	block, rest := pem.Decode(b.Roots())
	require.NotNil(t, block)
	assert.Empty(t, rest)
	ca, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	assert.True(t, ca.PermittedDNSDomainsCritical)
	assert.Equal(t, []string{"api.example.com"}, ca.PermittedDNSDomains)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	a := b.state.Load().authorities[0]
	for host, ok := range map[string]bool{"api.example.com": true, "example.com": false, "github.com": false} {
		leaf, err := a.leaf(host)
		require.NoError(t, err)
		_, err = leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host})
		assert.Equal(t, ok, err == nil, "%s: %v", host, err)
	}
	again, err := a.leaf("api.example.com")
	require.NoError(t, err)
	same, err := a.leaf("api.example.com")
	require.NoError(t, err)
	assert.Same(t, again, same)
}

func TestANewPolicyKeepsTheAuthoritiesThatProgramsTrust(t *testing.T) {
	w := newWorld(t)
	b := w.box(injected("api.example.com:Authorization=KEY"))
	before := string(b.Roots())
	more, err := policy.Parse(injected("api.example.com:Authorization=KEY", "example.com:X-Key=KEY"))
	require.NoError(t, err)
	require.NoError(t, b.SetPolicy(more))
	assert.True(t, strings.HasPrefix(string(b.Roots()), before))
	assert.Equal(t, 2, strings.Count(string(b.Roots()), "BEGIN CERTIFICATE"))
	require.NoError(t, b.SetPolicy(nil))
	assert.Empty(t, b.Roots())
}

func TestWithoutItsSecretAnInjectionStartsNothing(t *testing.T) {
	rules, err := policy.Parse(injected("api.example.com:Authorization=KEY"))
	require.NoError(t, err)
	for want, secret := range map[string]func(string) (string, error){
		"there are no secrets": nil,
		"no such secret":       func(string) (string, error) { return "", errors.New("no such secret") },
		"is empty":             func(string) (string, error) { return "", nil },
		"line break":           func(string) (string, error) { return "a\r\nHost: evil", nil },
	} {
		_, err := New(&Options{Policy: rules, Secret: secret})
		assert.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "evil")
	}
	b := newWorld(t).box(allow("example.com"), func(o *Options) { o.Secret = nil })
	assert.Error(t, b.SetPolicy(rules))
	assert.Equal(t, []string{"example.com"}, b.Policy().Settings().Allow, "the old rules stay")
}

func TestReadPresetsThroughTheProxy(t *testing.T) {
	w := newWorld(t)
	w.secure("github.com", echo)
	b := w.box(allow("git:read"))
	assert.Equal(t, 200, b.get("https://github.com/a/b/info/refs?service=git-upload-pack").status)
	for path, want := range map[string]int{"/a/b/git-upload-pack": 200, "/a/b/git-receive-pack": 403} {
		a, err := b.do(b.client(), "POST", "https://github.com"+path)
		require.NoError(t, err)
		assert.Equal(t, want, a.status, path)
	}
}

func TestATerminatedHostThatMayNotBeReachedSaysSoInside(t *testing.T) {
	w := newWorld(t)
	w.name("api.example.com", "10.0.0.1")
	b := w.box(injected("api.example.com:Authorization=KEY"))
	a := b.get("https://api.example.com/")
	assert.Equal(t, 403, a.status)
	assert.Contains(t, a.body, "10.0.0.1 is in a private network")
}

func TestAWebSocketInsidePassesWithItsSecret(t *testing.T) {
	w := newWorld(t)
	w.secure("api.example.com", func(rw http.ResponseWriter, r *http.Request) {
		c, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(c, r.Header.Get("Authorization")+" "+line)
	})
	b := w.box(injected("api.example.com:Authorization=KEY"))
	c, err := b.inside("api.example.com", &tls.Config{ServerName: "api.example.com"})
	require.NoError(t, err)
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	assert.Equal(t, 101, resp.StatusCode)
	_, err = io.WriteString(c, "hello\n")
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "value-of-KEY hello\n", line)
}

var _ net.Conn = (*handed)(nil)

// TestATunnelToATerminatedHostIsCut: the rules may change between the decision to
// make a tunnel and the dial, which decides again.
func TestATunnelToATerminatedHostIsCut(t *testing.T) {
	w := newWorld(t)
	got := make(chan string, 1)
	w.name("api.example.com", address)
	w.raw("443", func(c net.Conn) {
		raw, _ := io.ReadAll(c)
		got <- string(raw)
	})
	b := w.box(injected("api.example.com:Authorization=KEY,methods=GET"))
	up, err := b.dial(t.Context(), "connect", "api.example.com", 443)
	require.NoError(t, err)
	program, c := net.Pipe()
	go b.Proxy.serveConn(c, policy.Decision{Host: "api.example.com", Port: 443, Allowed: true}, "connect", up)
	_, _ = program.Write(helloFor(t, &tls.Config{ServerName: "api.example.com"}))
	_, err = program.Read(make([]byte, 1))
	assert.Error(t, err)
	assert.Empty(t, <-got)
}
