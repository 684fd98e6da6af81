package mcp

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// loadTime returns the duration of the load; WISBOX_LOAD_SECONDS changes it.
func loadTime() time.Duration {
	seconds, err := strconv.Atoi(os.Getenv("WISBOX_LOAD_SECONDS"))
	if err != nil {
		return 6 * time.Second
	}
	return time.Duration(seconds) * time.Second
}

func TestManyCallsInFlightFailNoneAndHoldNoMemory(t *testing.T) {
	w := newWorld(t).needsPodman()
	cmd := w.command("mcp")
	c := w.connect(&sdk.CommandTransport{Command: cmd}, nil, nil)
	c.call("shell_execute", args{"commands": []string{"true"}})
	memory := func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		require.NoError(t, err)
		return kib(t, string(status), "VmRSS")
	}
	half := loadTime() / 2
	calls := inFlight(t, c, 64, half)
	settled := memory()
	calls += inFlight(t, c, 64, half)
	t.Logf("%d calls in %v, 64 at once; %d KiB after the first half, %d after the second", calls, 2*half, settled, memory())
	assert.Less(t, memory(), settled+16<<10, "memory grows with the calls")
}

// inFlight keeps n calls running for a time.
func inFlight(t *testing.T, c *client, n int, lasts time.Duration) int64 {
	t.Helper()
	end := time.Now().Add(lasts)
	var calls atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			for time.Now().Before(end) {
				calls.Add(1)
				name, arguments := "shell_execute", args{"commands": []string{"echo", strconv.Itoa(i)}}
				if i%2 == 1 {
					name, arguments = "grep", args{"pattern": "x"}
				}
				res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: arguments})
				if !assert.NoError(t, err) || !assert.False(t, res.IsError, "%s", text(res)) {
					return
				}
			}
		})
	}
	all.Wait()
	return calls.Load()
}
