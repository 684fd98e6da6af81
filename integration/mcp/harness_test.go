// Package mcp drives `wisbox mcp` as agent runtimes do: with the official Go client, and with published programs from
// npm.
package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// args is a JSON object of a call's arguments or of a result.
type args = map[string]any

var binary = hosttest.Binary

// world is a separate state root for servers.
type world struct {
	t     *testing.T
	bin   string
	cache string
}

// newWorld creates a world. At the test's end no session may be left in it.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bin: binary(t), cache: filepath.Join(t.TempDir(), "state")}
	t.Cleanup(w.requireEmpty)
	return w
}

// requireEmpty waits until no session is left. A client that kills a server
// which takes long to end, on a busy machine, leaves the session to the next start.
func (w *world) requireEmpty() {
	gone := func() bool { return len(w.sessions()) == 0 }
	if !assert.Eventually(new(assert.CollectT), gone, 30*time.Second, 20*time.Millisecond) {
		w.t.Log("a server was killed; the next start has to clean up")
		out, err := w.command("run", "--", "true").CombinedOutput()
		assert.NoError(w.t, err, "%s", out)
	}
	assert.Empty(w.t, w.sessions(), "sessions are left")
}

// needsPodman skips the test where no session can run a program, or fails it
// where Podman is required.
func (w *world) needsPodman() *world {
	w.t.Helper()
	out, err := w.command("run", "--", "true").CombinedOutput()
	if err != nil {
		hosttest.NeedPodman(w.t, string(out))
	}
	return w
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+w.cache)
	return cmd
}

func (w *world) sessions() []string {
	found, _ := filepath.Glob(filepath.Join(w.cache, "sessions", "*"))
	return found
}

// stdio connects the Go client to its own server.
func (w *world) stdio(flags ...string) *client {
	return w.connect(&sdk.CommandTransport{Command: w.command(append([]string{"mcp"}, flags...)...)}, nil, nil)
}

// client is a connected Go client.
type client struct {
	*sdk.ClientSession
	t *testing.T
}

func (w *world) connect(over sdk.Transport, opts *sdk.ClientOptions, session *sdk.ClientSessionOptions) *client {
	w.t.Helper()
	conn, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, opts).Connect(w.t.Context(), over, session)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return &client{conn, w.t}
}

func (c *client) try(tool string, arguments any) *sdk.CallToolResult {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: arguments})
	require.NoError(c.t, err, "%s %v", tool, arguments)
	return res
}

// call calls a tool that must not answer with an error.
func (c *client) call(tool string, arguments any) args {
	c.t.Helper()
	res := c.try(tool, arguments)
	require.False(c.t, res.IsError, "%s %v: %s", tool, arguments, text(res))
	return object(c.t, res)
}

func object(t *testing.T, res *sdk.CallToolResult) args {
	t.Helper()
	out, ok := res.StructuredContent.(map[string]any)
	require.True(t, ok, "%v", res.StructuredContent)
	return out
}

func text(res *sdk.CallToolResult) string {
	raw, _ := json.Marshal(res.Content)
	return string(raw)
}

// httpServer is a running `wisbox mcp --http`.
type httpServer struct {
	w     *world
	cmd   *exec.Cmd
	addr  string
	token string

	silent chan struct{} // closed at the end of its output
	more   []byte
}

// serve starts a server on a free port, or on addr, and waits until it listens.
func (w *world) serve(addr string, flags ...string) *httpServer {
	w.t.Helper()
	tokenFile := filepath.Join(w.t.TempDir(), "token")
	s := &httpServer{w: w, cmd: w.command(append([]string{"mcp", "--http", addr, "--token-file", tokenFile}, flags...)...), silent: make(chan struct{})}
	errs, err := s.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, s.cmd.Start())
	w.t.Cleanup(s.stop)
	said := bufio.NewReader(errs)
	line, err := said.ReadString('\n')
	require.NoError(w.t, err)
	go s.listen(said)
	_, s.addr, _ = strings.Cut(strings.TrimSpace(line), "serving MCP on ")
	token, err := os.ReadFile(tokenFile)
	require.NoError(w.t, err)
	s.token = strings.TrimSpace(string(token))
	return s
}

// listen keeps the server's output after its first line, for a failed test.
func (s *httpServer) listen(said io.Reader) {
	defer close(s.silent)
	s.more, _ = io.ReadAll(said)
}

func (s *httpServer) stop() {
	_ = s.cmd.Process.Signal(os.Interrupt)
	<-s.silent
	_ = s.cmd.Wait()
	if s.w.t.Failed() && len(s.more) > 0 {
		s.w.t.Logf("the server said: %s", s.more)
	}
}

func (s *httpServer) url() string { return "http://" + s.addr + "/mcp" }

// bearer adds the token to every request.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

func (s *httpServer) transport() sdk.Transport {
	return &sdk.StreamableClientTransport{Endpoint: s.url(), HTTPClient: &http.Client{Transport: bearer{s.token, http.DefaultTransport}}}
}

func (s *httpServer) connect(version string) *client {
	return s.w.connect(s.transport(), nil, &sdk.ClientSessionOptions{ProtocolVersion: version})
}
