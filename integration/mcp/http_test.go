package mcp

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
