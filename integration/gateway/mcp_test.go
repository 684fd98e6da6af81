package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func (s *server) agent(key, path string) (*sdk.ClientSession, error) {
	return sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(s.w.t.Context(),
		&sdk.StreamableClientTransport{Endpoint: s.url + path, HTTPClient: &http.Client{Transport: bearer(key)}, MaxRetries: -1},
		&sdk.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
}

// sh runs a command with the tool.
func (s *server) sh(c *sdk.ClientSession, command string) string {
	t := s.w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "shell_execute", Arguments: map[string]any{"commands": []string{"sh", "-c", command}}})
	require.NoError(t, err)
	var text strings.Builder
	for _, part := range res.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			text.WriteString(t.Text)
		}
	}
	require.False(t, res.IsError, text.String())
	return text.String()
}

// TestAgentsOverMCP checks agents in their own Pods, and in a sandbox created by the other server.
func TestAgentsOverMCP(t *testing.T) {
	w := newWorld(t)
	a, b := w.serve(), w.serve()
	id, _ := a.create(w.keys[0])
	known, err := b.agent(w.keys[0], "/mcp/"+id)
	require.NoError(t, err)
	assert.Contains(t, b.sh(known, "echo one >kept; id -un"), "user")
	_, err = b.agent(w.keys[1], "/mcp/"+id)
	require.Error(t, err, "it is another key's")

	own, err := a.agent(w.keys[1], "/mcp")
	require.NoError(t, err)
	assert.Contains(t, a.sh(own, "ls -A; echo $((6*7))"), "42")
	assert.Len(t, w.pods(), 2)
	require.NoError(t, own.Close())
	require.Eventually(t, func() bool { return len(w.pods()) == 1 }, guard, 20*time.Millisecond, "it lives as long as the connection")
	assert.Contains(t, b.sh(known, "cat kept"), "one")
	require.NoError(t, known.Close())
	assert.Equal(t, http.StatusNoContent, b.health(id), "a sandbox outlives those who use it")
}
