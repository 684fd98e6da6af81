package serve

import (
	"context"
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

// agent is an MCP client with a key.
type agent struct {
	*sdk.ClientSession
	t *testing.T
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func (s *server) tryAgent(key, path, version string) (*agent, error) {
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(s.w.t.Context(),
		&sdk.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: &http.Client{Transport: bearer(key)}, MaxRetries: -1},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	s.w.t.Cleanup(func() { _ = c.Close() })
	return &agent{c, s.w.t}, nil
}

func (s *server) agent(key, path, version string) *agent {
	s.w.t.Helper()
	c, err := s.tryAgent(key, path, version)
	require.NoError(s.w.t, err)
	return c
}

// try calls a tool, and returns the text of its answer.
func (a *agent) try(name string, args map[string]any) (text string, failed bool) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*hangGuard)
	defer cancel()
	res, err := a.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: args})
	require.NoError(a.t, err)
	for _, c := range res.Content {
		if t, ok := c.(*sdk.TextContent); ok {
			text += t.Text
		}
	}
	return text, res.IsError
}

func (a *agent) call(name string, args map[string]any) string {
	a.t.Helper()
	text, failed := a.try(name, args)
	require.False(a.t, failed, text)
	return text
}

func (a *agent) sh(command string) string {
	a.t.Helper()
	return a.call("shell_execute", map[string]any{"commands": []string{"sh", "-c", command}})
}

// owned returns the sandboxes that a key can see.
func (s *server) owned(key string) (ids []string) {
	s.w.t.Helper()
	var all []struct{ SandboxID string }
	require.Equal(s.w.t, http.StatusOK, s.ask(key, "GET", "/v2/sandboxes", "", &all))
	for _, one := range all {
		ids = append(ids, one.SandboxID)
	}
	return ids
}

const revision = "2025-11-25" // a revision with connections

// TestAConnectionOverMCPHasASandboxOfItsKey like those of the SDK, which ends with the connection.
func TestAConnectionOverMCPHasASandboxOfItsKey(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	small := w.wisbox("serve", "key", "create", "--name", "small", "--sandboxes", "1")
	one := s.agent(small, "/mcp", revision)
	assert.Empty(t, s.owned(small), "a connection without calls has none")
	assert.Contains(t, one.sh("echo $((6*7)); id -un; pwd"), "42\nuser\n/workspace")
	one.call("write_file", map[string]any{"file_path": "a.txt", "content": "of an agent"})
	owned := s.owned(small)
	require.Len(t, owned, 1)
	assert.Empty(t, s.owned(w.key))

	text, failed := s.agent(small, "/mcp", revision).try("ls", map[string]any{})
	assert.True(t, failed)
	assert.Contains(t, text, "this key has 1 sandboxes, which is its limit")

	newest := s.agent(w.key, "/mcp", "2026-07-28")
	var handle string
	opened, err := newest.CallTool(t.Context(), &sdk.CallToolParams{Name: "session_open", Arguments: map[string]any{}})
	require.NoError(t, err)
	handle, _ = opened.StructuredContent.(map[string]any)["session"].(string)
	require.NotEmpty(t, handle)
	assert.NotContains(t, newest.call("ls", map[string]any{"session": handle}), "a.txt")
	require.Len(t, s.owned(w.key), 1)
	newest.call("session_close", map[string]any{"session": handle})
	assert.Empty(t, s.owned(w.key))

	require.NoError(t, one.Close())
	assert.Empty(t, s.owned(small), "it goes with its connection")
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, hangGuard, time.Millisecond)

	left := s.agent(w.key, "/mcp", revision)
	left.sh("true")
	said := s.stop()
	assert.NotContains(t, said, owned[0])
	assert.NotContains(t, said, small)
	audit, err := os.ReadFile(filepath.Join(w.cache, "serve", "audit.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(audit), `"route":"/mcp","status":200`)
	w.serve() // finishes the clean-up of the killed server
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, hangGuard, time.Millisecond, "no connection outlives its server")
}

// TestASandboxIsReachedOverMCPByItsPath with its owner's keys only, and outlives the connection.
func TestASandboxIsReachedOverMCPByItsPath(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	id, other := s.create(w.key), w.wisbox("serve", "key", "create")
	for key, path := range map[string]string{other: "/mcp/" + id, w.key: "/mcp/" + strings.Repeat("q", 20), w.key + "0": "/mcp/" + id, "": "/mcp"} {
		_, err := s.tryAgent(key, path, revision)
		require.Error(t, err, path)
	}
	a := s.agent(w.key, "/mcp/"+id, revision)
	a.call("write_file", map[string]any{"file_path": "a.txt", "content": "of an agent"})
	assert.Equal(t, "of an agent", w.wisbox("exec", id, "--", "cat", "a.txt"))

	// A session's name gives no access, neither to another key nor at another path.
	for key, path := range map[string]string{other: "/mcp", w.key: "/mcp"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"ls","arguments":{}}}`))
		require.NoError(t, err)
		r.Header = http.Header{"Authorization": {"Bearer " + key}, "Mcp-Session-Id": {a.ID()}, "Mcp-Protocol-Version": {revision},
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		res.Body.Close()
		assert.Contains(t, []int{http.StatusForbidden, http.StatusNotFound}, res.StatusCode)
	}

	if s.ask(w.key, "POST", "/sandboxes/"+id+"/pause", "", nil) == http.StatusNoContent {
		text, failed := a.try("ls", map[string]any{})
		assert.True(t, failed)
		assert.Contains(t, text, "resume it by the SDK's connect")
		assert.Equal(t, http.StatusCreated, s.ask(w.key, "POST", "/sandboxes/"+id+"/connect", "{}", nil))
	}
	assert.Contains(t, a.call("ls", map[string]any{}), "a.txt")
	require.NoError(t, a.Close())
	assert.Equal(t, []string{id}, s.owned(w.key))

	a = s.agent(w.key, "/mcp/"+id, revision)
	a.call("ls", map[string]any{})
	assert.Equal(t, http.StatusNoContent, s.ask(w.key, "DELETE", "/sandboxes/"+id, "", nil))
	_, err := a.CallTool(t.Context(), &sdk.CallToolParams{Name: "ls", Arguments: map[string]any{}})
	require.Error(t, err, "what has ended is not there")
}
