package mcp

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOverHTTPAConnectionHasItsSession(t *testing.T) {
	w := newWorld(t)
	s := w.serve("127.0.0.1:0")
	one, two := s.connect("2025-11-25"), s.connect("2025-11-25")
	one.call("write_file", args{"file_path": "a", "content": "1"})
	two.call("write_file", args{"file_path": "b", "content": "2"})
	assert.Len(t, w.sessions(), 2)
	assert.Contains(t, text(two.try("read_file", args{"file_path": "a"})), "not_found")
	require.NoError(t, one.Close())
	assert.Len(t, w.sessions(), 1, "the session goes with its connection")
	require.NoError(t, two.Close())
}

func TestOverStatelessHTTPTheSessionIsAnArgument(t *testing.T) {
	w := newWorld(t)
	c := w.serve("127.0.0.1:0").connect("2026-07-28")
	assert.Equal(t, "2026-07-28", c.InitializeResult().ProtocolVersion)
	assert.Contains(t, text(c.try("ls", args{})), "session is missing")
	handle := c.call("session_open", args{})["session"]
	c.call("write_file", args{"session": handle, "file_path": "a", "content": "1"})
	assert.Len(t, c.call("ls", args{"session": handle})["entries"], 1)
	c.call("session_close", args{"session": handle})
	assert.Contains(t, text(c.try("ls", args{"session": handle})), "not_found")
}

func TestOverAUnixSocket(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	path := filepath.Join(dir, "s")
	s := w.serve("unix:" + path)
	over := &http.Transport{DialContext: dialer(path)}
	c := w.connect(&sdk.StreamableClientTransport{
		Endpoint: "http://wisbox/mcp", HTTPClient: &http.Client{Transport: bearer{s.token, over}},
	}, nil, nil)
	assert.NotEmpty(t, listed(t, c))
}

func TestRequestsWithoutTheTokenGetNothing(t *testing.T) {
	s := newWorld(t).serve("127.0.0.1:0")
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for name, c := range map[string]struct {
		header map[string]string
		status int
	}{
		"no token":      {nil, http.StatusUnauthorized},
		"a wrong one":   {map[string]string{"Authorization": "Bearer " + strings.Repeat("A", 26)}, http.StatusUnauthorized},
		"a page":        {map[string]string{"Authorization": "Bearer " + s.token, "Origin": "http://evil.example"}, http.StatusForbidden},
		"rebinding":     {map[string]string{"Authorization": "Bearer " + s.token, "Host": "evil.example"}, http.StatusForbidden},
		"a plain form":  {map[string]string{"Authorization": "Bearer " + s.token, "Content-Type": "text/plain"}, http.StatusUnsupportedMediaType},
		"long header":   {map[string]string{"Authorization": "Bearer " + s.token, "X-Long": strings.Repeat("x", 80<<10)}, http.StatusRequestHeaderFieldsTooLarge},
		"the page asks": {map[string]string{"Authorization": "Bearer " + s.token, "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url(), strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			for k, v := range c.header {
				r.Header.Set(k, v)
			}
			r.Host = r.Header.Get("Host")
			res, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			defer res.Body.Close()
			assert.Equal(t, c.status, res.StatusCode)
			assert.Empty(t, res.Header.Get("Access-Control-Allow-Origin"))
		})
	}
}

func TestOnlyLoopbackIsServedWithoutTLS(t *testing.T) {
	out, err := newWorld(t).command("mcp", "--http", "0.0.0.0:0").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "TLS")
}

func listed(t *testing.T, c *client) []string {
	t.Helper()
	var names []string
	for one, err := range c.Tools(t.Context(), nil) {
		require.NoError(t, err)
		names = append(names, one.Name)
	}
	return names
}

// dialer connects to a unix socket whatever the address.
func dialer(path string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
}

func TestAServersOwnTokenIsInAPrivateFileWhileItRuns(t *testing.T) {
	cmd := newWorld(t).command("mcp", "--http", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(said)
	for range 2 { // the address, and the place of the token
		require.True(t, lines.Scan(), "two lines")
	}
	_, file, _ := strings.Cut(lines.Text(), "token is in ")
	info, err := os.Stat(file)
	require.NoError(t, err, lines.Text())
	assert.Equal(t, os.FileMode(0o600), info.Mode())
	token, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Greater(t, len(token), 22)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest, err := io.ReadAll(said)
	require.NoError(t, err)
	assert.NotContains(t, string(rest), strings.TrimSpace(string(token)))
	_ = cmd.Wait()
	assert.NoFileExists(t, file)
}

// TestAServerSaysWhatItsLimitsDo on stderr, without --debug: here that it closed a connection for a new one.
func TestAServerSaysWhatItsLimitsDo(t *testing.T) {
	cmd := newWorld(t).command("mcp", "--http", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	defer time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() }).Stop()
	lines := bufio.NewScanner(said)
	require.True(t, lines.Scan())
	_, addr, _ := strings.Cut(lines.Text(), "serving MCP on ")
	require.True(t, lines.Scan(), "the place of the token")
	for range 65 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		require.NoError(t, err)
		defer conn.Close()
	}
	require.True(t, lines.Scan(), "it says nothing")
	var line struct{ Level, Msg string }
	require.NoError(t, json.Unmarshal(lines.Bytes(), &line), lines.Text())
	assert.Equal(t, "WARN", line.Level)
	assert.Contains(t, line.Msg, "closed")
}

// certificate creates a key and a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	about := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	write := func(name, kind string, raw []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600))
		return path
	}
	pool = x509.NewCertPool()
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool.AddCert(made)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret), pool
}

func TestBeyondLoopbackTLSIsServedWithTheToken(t *testing.T) {
	w := newWorld(t)
	cert, key, pool := certificate(t)
	s := w.serve("0.0.0.0:0", "--tls-cert", cert, "--tls-key", key)
	_, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	over := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	defer over.CloseIdleConnections()
	url := "https://127.0.0.1:" + port + "/mcp"
	c := w.connect(&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{s.token, over}}}, nil, nil)
	assert.NotEmpty(t, listed(t, c))
	res, err := (&http.Client{Transport: over}).Post(url, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	assert.Equal(t, http.StatusUnauthorized, res.StatusCode)
}
