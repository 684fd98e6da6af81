package mcp

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestAServersMetricsAreServed(t *testing.T) {
	w := newWorld(t).needsPodman()
	addr := fmt.Sprintf("127.0.0.1:%d", hosttest.FreePort(t))
	c := w.stdio("--metrics", addr)
	c.call("shell_execute", args{"commands": []string{"true"}})
	c.call("process_start", args{"commands": []string{"sleep", "600"}})
	res, err := http.Get("http://" + addr + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	for _, line := range []string{
		`wisbox_calls_total{outcome="ok",tool="shell_execute"} 1`,
		`wisbox_calls_total{outcome="ok",tool="process_start"} 1`,
		`wisbox_programs_total{verdict="exited"} 1`,
		`wisbox_sessions 1`,
	} {
		assert.Contains(t, string(text), line+"\n")
	}
	require.NoError(t, c.Close())
}
