package mcp

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/mcpserver"
)

// What the protocol adds to a call, client and server and pipes together: the
// same session runs /bin/true with and without it in turn.
func TestTheProtocolAddsLessThanAMillisecond(t *testing.T) {
	newWorld(t).needsPodman()
	ctx := t.Context()
	m, err := wisbox.NewManager(ctx, &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "state")})
	require.NoError(t, err)
	defer m.Close()
	session, err := m.Open(ctx, nil)
	require.NoError(t, err)
	c := overPipes(t, mcpserver.New(wisbox.ToolSet(), &mcpserver.Options{
		Open: func(context.Context) (mcpserver.Session, error) { return session, nil },
	}))
	raw := json.RawMessage(`{"commands":["/bin/true"]}`)
	direct := func() {
		_, err := session.Call(ctx, "shell_execute", raw)
		require.NoError(t, err)
	}
	through := func() {
		res, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "shell_execute", Arguments: raw})
		require.NoError(t, err)
		require.False(t, res.IsError)
	}
	for range 20 {
		direct()
		through()
	}
	var added time.Duration
	for range 3 { // a busy machine gets another try
		with, without := inTurn(200, through, direct)
		added = with - without
		t.Logf("p50 of /bin/true: %v over the protocol, %v without; it adds %v", with, without, added)
		if added <= time.Millisecond {
			return
		}
	}
	assert.LessOrEqual(t, added, time.Millisecond)
}

func inTurn(n int, a, b func()) (p50a, p50b time.Duration) {
	took := func(f func()) time.Duration {
		began := time.Now()
		f()
		return time.Since(began)
	}
	var as, bs []time.Duration
	for range n {
		as, bs = append(as, took(a)), append(bs, took(b))
	}
	slices.Sort(as)
	slices.Sort(bs)
	return as[n/2], bs[n/2]
}

func overPipes(t *testing.T, s *mcpserver.Server) *sdk.ClientSession {
	t.Helper()
	in, toServer, err := os.Pipe()
	require.NoError(t, err)
	fromServer, out, err := os.Pipe()
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.ServeStdio(context.WithoutCancel(t.Context()), in, out)
		_ = out.Close()
	}()
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		_ = toServer.Close()
		<-ended
	})
	return c
}
