package e2b

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/registry/registrytest"
)

// TestTheHostLeadsToTheSandboxThatItNames, whatever else a request contains; and no request for a port reaches the
// control API.
func TestTheHostLeadsToTheSandboxThatItNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z0-9]{20}`).Draw(t, "id")
		port := rapid.IntRange(1, 65535).Draw(t, "port")
		host := fmt.Sprintf("%d-%s.%s", port, id, rapid.SampledFrom([]string{"localhost", "localhost:3000", "a.example.com", "A.EXAMPLE.com:8443"}).Draw(t, "below"))
		if rapid.Bool().Draw(t, "upper") {
			host = strings.ToUpper(host)
		}
		r := &http.Request{Host: host, Header: http.Header{}, URL: &url.URL{
			Path:     rapid.SampledFrom([]string{"/", "/files", "/sandboxes", "/health"}).Draw(t, "path"),
			RawQuery: rapid.SampledFrom([]string{"", "signature=x"}).Draw(t, "query"),
		}}
		if rapid.Bool().Draw(t, "header") {
			r.Header.Set(headerSandbox, rapid.StringMatching(`[a-z0-9]{20}`).Draw(t, "other"))
			r.Header.Set(headerPort, "1")
		}
		to, err := targetOf(r)
		require.NoError(t, err)
		require.Equal(t, target{id: id, port: uint16(port)}, to)
	})
}

func TestWhatNamesNoSandboxIsForTheControlAPI(t *testing.T) {
	for _, host := range []string{"localhost", "127.0.0.1:3000", "[::1]:3000", "api.example.com", "3000-short.localhost", "3000-" + strings.Repeat("a", 20), "x-" + strings.Repeat("a", 20) + ".localhost", "3000-" + strings.Repeat("a", 21) + ".localhost"} {
		to, err := targetOf(&http.Request{Host: host, Header: http.Header{}, URL: &url.URL{Path: "/"}})
		require.NoError(t, err)
		assert.Equal(t, target{}, to, host)
	}
	for _, port := range []string{"", "0", "65536", "-1", "x", "+1"} {
		r := &http.Request{Host: "localhost", Header: http.Header{headerSandbox: {strings.Repeat("a", 20)}}, URL: &url.URL{}}
		r.Header.Set(headerPort, port)
		_, err := targetOf(r)
		require.Error(t, err, port)
	}
}

func TestASandboxThatIsNotThereIs502(t *testing.T) {
	w := newWorld(t, nil, nil)
	for _, id := range []string{strings.Repeat("a", 20), "x"} {
		r := w.toPort(id, "1", "/")
		r.Host = ""
		r.Header.Set(headerSandbox, id)
		r.Header.Set(headerPort, "49983")
		var f struct {
			said
			SandboxID string `json:"sandboxId"`
		}
		assert.Equal(t, 502, w.do(r, &f).StatusCode)
		assert.Equal(t, 502, f.Code)
		assert.Equal(t, "The sandbox was not found", f.Message)
	}
}

func TestEnvdIsReachedByHostAndByHeader(t *testing.T) {
	w := newWorld(t, nil, nil)
	a := w.create(keyA, `{"envVars":{"E":"1"}}`)
	r := w.toPort("", "", "/made")
	r.Host = ""
	r.Header.Set(headerSandbox, a.SandboxID)
	r.Header.Set(headerPort, "49983")
	for _, r := range []*http.Request{r, w.toPort(a.SandboxID, "49983", "/made")} {
		var made struct {
			Token string
			Env   map[string]string
		}
		res := w.do(r, &made)
		assert.Equal(t, 200, res.StatusCode)
		assert.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
		assert.Equal(t, "sandbox", res.Header.Get("Content-Security-Policy"))
		assert.Equal(t, a.EnvdToken, made.Token)
		assert.Equal(t, map[string]string{"E": "1"}, made.Env)
	}
}

func TestASignedURLFindsItsSandbox(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.create(keyA, `{}`)
	a := w.create(keyA, `{}`)
	sign := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return url.QueryEscape("v1_" + base64.RawStdEncoding.EncodeToString(sum[:]))
	}
	signed := "/files?path=%2Fa%20b&signature=" + sign("/a b:read::"+a.EnvdToken)
	res := w.ask("", "GET", signed, "", nil)
	assert.Equal(t, 200, res.StatusCode)
	assert.Equal(t, "sandbox", res.Header.Get("Content-Security-Policy"))
	until := "/files?path=f&username=user&signature_expiration=7&signature=" + sign("f:write:user:"+a.EnvdToken+":7")
	assert.Equal(t, 200, w.ask("", "POST", until, "x", nil).StatusCode)
	assert.Equal(t, "invalid signature", w.refused(401, "", "GET", until, "").Message)
	w.refused(401, "", "GET", "/files?path=g&signature="+sign("f:read::"+a.EnvdToken), "")
	w.refused(401, "", "GET", "/files?path=f", "")
	assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+a.SandboxID+"/pause", "", nil).StatusCode)
	w.refused(401, "", "GET", signed, "")
}

// program returns an engine whose sandboxes have a server behind their ports.
func program(t *testing.T, h http.HandlerFunc) *registrytest.Engine {
	t.Helper()
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	return &registrytest.Engine{Ports: map[uint16]string{3000: web.Listener.Addr().String()}}
}

// TestAProgramsCookiesStayAtItsPort, whatever domain it names.
func TestAProgramsCookiesStayAtItsPort(t *testing.T) {
	w := newWorld(t, program(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Set-Cookie"] = []string{"a=1; Domain=localhost; Path=/; HttpOnly", "domain=2;DOMAIN = .localhost;Secure", "plain=Domain=x", "d=4; domain"}
	}), nil)
	a := w.create(keyA, `{}`)
	res := w.do(w.toPort(a.SandboxID, "3000", "/"), nil)
	assert.Equal(t, []string{"a=1; Path=/; HttpOnly", "domain=2;Secure", "plain=Domain=x", "d=4"}, res.Header["Set-Cookie"])
}

func TestAPortGetsTheRequestAsItCame(t *testing.T) {
	var got *http.Request
	engine := program(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(r.Context())
		w.Header().Set("X-Program", "yes")
		w.WriteHeader(http.StatusTeapot)
	})
	w := newWorld(t, engine, nil)
	a := w.create(keyA, `{}`)
	r := w.toPort(a.SandboxID, "3000", "/p/a%2Fb?q=1;2&x")
	r.Header.Set("X-API-KEY", keyA)
	r.Header.Set("X-Access-Token", a.EnvdToken)
	r.Header.Set("Authorization", "Bearer "+keyB)
	r.Header.Set("Origin", "https://elsewhere.example")
	r.Header.Set(headerSandbox, a.SandboxID)
	r.Header.Set("Cookie", "a=b")
	res := w.do(r, nil)
	assert.Equal(t, 418, res.StatusCode)
	assert.Equal(t, "yes", res.Header.Get("X-Program"))
	assert.Equal(t, "3000-"+a.SandboxID+".localhost", got.Host)
	assert.Equal(t, "/p/a%2Fb?q=1;2&x", got.RequestURI)
	assert.Equal(t, "a=b", got.Header.Get("Cookie"))
	for _, name := range []string{"X-Api-Key", "X-Access-Token", "Authorization", headerSandbox} {
		assert.Empty(t, got.Header.Get(name), "a program gets nothing that opens this server")
	}
	r = w.toPort(a.SandboxID, "3000", "/")
	r.Header.Set("Authorization", "Bearer of the program")
	w.do(r, nil)
	assert.Equal(t, "Bearer of the program", got.Header.Get("Authorization"))

	for name, value := range map[string]string{
		"X-Api-Key": "  " + keyA, "x_api_key": keyA, "X_Access_Token": a.EnvdToken, "Authorization": "Bearer\t" + keyB, "authorization": "Token token=\"" + keyA + "\"",
		"AUTHORIZATION": "Bearer " + keyA + ", Basic x", "Proxy_Authorization": "Bearer " + keyA,
	} {
		r = w.toPort(a.SandboxID, "3000", "/")
		r.Header[name] = []string{value}
		w.do(r, nil)
		for _, values := range got.Header {
			for _, key := range []string{keyA, keyB, a.EnvdToken} {
				assert.NotContains(t, strings.Join(values, " "), key, "%s: %s", name, value)
			}
		}
	}

	masked := w.create(keyA, `{"network":{"maskRequestHost":"localhost:${PORT}"}}`)
	w.do(w.toPort(masked.SandboxID, "3000", "/"), nil)
	assert.Equal(t, "localhost:3000", got.Host)

	var f struct {
		said
		Port int
	}
	assert.Equal(t, 502, w.do(w.toPort(a.SandboxID, "3001", "/"), &f).StatusCode)
	assert.Equal(t, "The sandbox is running but port is not open", f.Message)
	assert.Equal(t, 3001, f.Port)
}

// TestTheHeadersOfAProgramsAnswerAreBounded: a transport takes 10 MiB of them by itself, for each request.
func TestTheHeadersOfAProgramsAnswerAreBounded(t *testing.T) {
	size := 20 << 10
	engine := program(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Long", strings.Repeat("a", size)) })
	w := newWorld(t, engine, nil)
	a := w.create(keyA, `{}`)
	assert.Equal(t, 200, w.do(w.toPort(a.SandboxID, "3000", "/"), nil).StatusCode)
	size = 40 << 10
	var f said
	assert.Equal(t, 502, w.do(w.toPort(a.SandboxID, "3000", "/"), &f).StatusCode)
	assert.Contains(t, f.Message, "32 KiB of headers")
}

// TestAPortSpeaksTLS if the client has configured it, with a self-signed certificate.
func TestAPortSpeaksTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	t.Cleanup(web.Close)
	addr := web.Listener.Addr().String()
	w := newWorld(t, &registrytest.Engine{Ports: map[uint16]string{3000: addr, 3001: addr}}, nil)
	a := w.create(keyA, `{"network":{"httpsPorts":[3000]}}`)
	assert.Equal(t, 418, w.do(w.toPort(a.SandboxID, "3000", "/"), nil).StatusCode)
	assert.Equal(t, 400, w.do(w.toPort(a.SandboxID, "3001", "/"), nil).StatusCode, "the program's own answer to plain HTTP")
	var d struct{ Network struct{ HTTPSPorts []int } }
	w.ask(keyA, "GET", "/sandboxes/"+a.SandboxID, "", &d)
	assert.Equal(t, []int{3000}, d.Network.HTTPSPorts)
	for _, ports := range []string{`[0]`, `[65536]`, `"443"`, `[` + strings.Repeat("1,", 64) + `1]`} {
		w.refused(400, keyA, "POST", "/sandboxes", `{"network":{"httpsPorts":`+ports+`}}`)
	}
}

func TestClosedPortsAskForTheTrafficToken(t *testing.T) {
	w := newWorld(t, program(t, func(http.ResponseWriter, *http.Request) {}), nil)
	a := w.create(keyA, `{"network":{"allowPublicTraffic":false}}`)
	require.NotNil(t, a.TrafficToken)
	for token, status := range map[string]int{"": 403, "x": 403, a.EnvdToken: 403, *a.TrafficToken: 200} {
		r := w.toPort(a.SandboxID, "3000", "/")
		r.Header.Set("e2b-traffic-access-token", token)
		assert.Equal(t, status, w.do(r, nil).StatusCode)
	}
	assert.Equal(t, 204, w.do(w.toPort(a.SandboxID, "49983", "/health"), nil).StatusCode, "envd has a token of its own")
}

// switched returns a connection to a port that has switched to another protocol, such as WebSocket.
func switched(t *testing.T, w *world, id string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn := w.web.dial(t)
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: 3000-%s.localhost\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", id)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	return conn, in
}

func TestAConnectionThatSwitchesItsProtocolEndsWithTheSandbox(t *testing.T) {
	gone := make(chan struct{})
	w := newWorld(t, program(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rest, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			_, _ = io.Copy(conn, rest)
			conn.Close()
			close(gone)
		}
	}), nil)
	a := w.create(keyA, `{}`)
	conn, in := switched(t, w, a.SandboxID)
	fmt.Fprint(conn, "hello\n")
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "hello\n", line)
	assert.Equal(t, 204, w.ask(keyA, "DELETE", "/sandboxes/"+a.SandboxID, "", nil).StatusCode)
	_, err = in.ReadString('\n')
	require.Error(t, err)
	<-gone
}

// TestTheEndOfASandboxCutsItsStreams: clients notice that their answers are incomplete.
func TestTheEndOfASandboxCutsItsStreams(t *testing.T) {
	for _, what := range []string{"DELETE", "POST /pause"} {
		w := newWorld(t, nil, nil)
		a := w.create(keyA, `{}`)
		res, err := w.client.Do(w.toPort(a.SandboxID, "49983", "/stream"))
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(res.Body, got)
		require.NoError(t, err)
		method, path, _ := strings.Cut(what, " ")
		assert.Equal(t, 204, w.ask(keyA, method, "/sandboxes/"+a.SandboxID+path, "", nil).StatusCode)
		rest, err := io.ReadAll(res.Body)
		require.Error(t, err)
		assert.Empty(t, rest)
		res.Body.Close()
	}
}

// TestAClientThatStopsReadingBlocksNobody: others are served, and the sandbox ends.
func TestAClientThatStopsReadingBlocksNobody(t *testing.T) {
	left := make(chan struct{})
	w := newWorld(t, program(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/flood" {
			return
		}
		defer close(left)
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}), nil)
	a := w.create(keyA, `{}`)
	conn := w.web.dial(t)
	fmt.Fprintf(conn, "GET /flood HTTP/1.1\r\nHost: 3000-%s.localhost\r\n\r\n", a.SandboxID)
	_, err := io.ReadFull(conn, make([]byte, 1<<20)) // and no more
	require.NoError(t, err)
	assert.Equal(t, 200, w.do(w.toPort(a.SandboxID, "3000", "/"), nil).StatusCode)
	assert.Equal(t, 200, w.ask(keyA, "GET", "/sandboxes/"+a.SandboxID, "", nil).StatusCode)
	assert.Equal(t, 204, w.ask(keyA, "DELETE", "/sandboxes/"+a.SandboxID, "", nil).StatusCode)
	<-left
}

func TestARequestForAPortResumesASandbox(t *testing.T) {
	w := newWorld(t, program(t, func(http.ResponseWriter, *http.Request) {}), nil)
	for body, status := range map[string]int{`{"autoPause":true}`: 502, `{"autoPause":true,"autoResume":{"enabled":true}}`: 200} {
		a := w.create(keyA, body)
		assert.Equal(t, 204, w.ask(keyA, "POST", "/sandboxes/"+a.SandboxID+"/pause", "", nil).StatusCode)
		assert.Equal(t, 502, w.do(w.toPort(a.SandboxID, "49983", "/health"), nil).StatusCode)
		assert.Equal(t, status, w.do(w.toPort(a.SandboxID, "3000", "/"), nil).StatusCode)
	}
}
