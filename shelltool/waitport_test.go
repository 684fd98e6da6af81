package shelltool_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/shelltool"
	"github.com/wisbox/wisbox/tool"
)

// listens is a Python program that listens on an address and port.
const listens = `import socket, sys, time
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], int(sys.argv[2])))
s.listen()
time.sleep(600)`

// TestAStartWaitsForItsPort: the answer comes once it is served, on whatever address of
// the loopback interface.
func TestAStartWaitsForItsPort(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1", "0.0.0.0"} {
		b := newBench(t)
		port := hosttest.FreePort(t)
		info, res := must[shelltool.ProcessInfo](b, "process_start", fmt.Sprintf(`{"commands":["python3","-c",%s,%q,"%d"],"wait_port":%d,"wait_seconds":60}`, quote(listens), addr, port, port))
		require.NotNil(t, info.Listens)
		assert.True(t, *info.Listens)
		assert.Empty(t, info.Notices)
		assert.Contains(t, res.Text, "its port listens")
		list, _ := must[shelltool.ListResult](b, "process_list", `{}`)
		assert.Nil(t, list.Processes[0].Listens, "it is of the start alone")
	}
}

// TestAWaitForAPortEnds with the program, with its time and with its caller, and says so.
func TestAWaitForAPortEnds(t *testing.T) {
	b := newBench(t)
	port := hosttest.FreePort(t)
	ended, res := must[shelltool.ProcessInfo](b, "process_start", fmt.Sprintf(`{"script":"sleep 0.2; exit 3","wait_port":%d}`, port))
	assert.False(t, *ended.Listens)
	assert.Equal(t, 3, *ended.ExitCode)
	assert.Contains(t, res.Text, "ended before anything listened")
	for wait, says := range map[string]string{"0": "nothing listens", "0.2": "after 200ms", "-1": "raised to 0"} {
		late, res := must[shelltool.ProcessInfo](b, "process_start", fmt.Sprintf(`{"commands":["sleep","600"],"wait_port":%d,"wait_seconds":%s}`, port, wait))
		assert.False(t, *late.Listens)
		assert.Equal(t, "running", late.State)
		assert.Contains(t, res.Text, says)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan *shelltool.ProcessInfo, 1)
	go func() {
		info, err := b.shell.Start(ctx, sandbox.Cmd{Argv: []string{"sleep", "600"}}, shelltool.StartOptions{Port: shelltool.PortWait{Port: uint16(port)}})
		assert.NoError(t, err)
		left <- info
	}()
	require.Eventually(t, func() bool { return b.shell.Running() == 4 }, 30*time.Second, time.Millisecond)
	cancel()
	assert.Equal(t, "running", (<-left).State, "the process goes on without who waited")
}

// TestAPortThatIsTakenStartsNothing: another's server would be mistaken for it.
func TestAPortThatIsTakenStartsNothing(t *testing.T) {
	b := newBench(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = b.call("process_start", fmt.Sprintf(`{"commands":["sleep","600"],"wait_port":%d}`, l.Addr().(*net.TCPAddr).Port))
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	assert.Equal(t, "wait_port", tool.AsError(err).Field)
	assert.Zero(t, b.shell.Running())
	for _, bad := range []string{"0", "-1", "65536", `"80"`, "1.5"} {
		_, err := b.call("process_start", `{"commands":["true"],"wait_port":`+bad+`}`)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), bad)
		assert.Equal(t, "wait_port", tool.AsError(err).Field, bad)
	}
	blind := newBench(t, func(o *shelltool.Options) {
		o.Runner = func(context.Context) (sandbox.Runner, error) { return flood(0), nil }
	})
	_, err = blind.call("process_start", `{"commands":["true"],"wait_port":80}`)
	assert.Equal(t, tool.Unsupported, tool.KindOf(err))
}
