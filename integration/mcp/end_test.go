package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raw is a server with a client that writes lines.
type raw struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (w *world) raw() *raw {
	w.t.Helper()
	r := &raw{t: w.t, cmd: w.command("mcp")}
	in, err := r.cmd.StdinPipe()
	require.NoError(w.t, err)
	out, err := r.cmd.StdoutPipe()
	require.NoError(w.t, err)
	r.in, r.out = in, bufio.NewReader(out)
	require.NoError(w.t, r.cmd.Start())
	w.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill()
			_ = r.cmd.Wait()
		}
	})
	r.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	r.line()
	r.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return r
}

func (r *raw) send(line string) {
	_, err := io.WriteString(r.in, line+"\n")
	require.NoError(r.t, err)
}

func (r *raw) line() string {
	line, err := r.out.ReadString('\n')
	require.NoError(r.t, err)
	return line
}

func (r *raw) call(id int, tool string, arguments args) {
	raw, err := json.Marshal(arguments)
	require.NoError(r.t, err)
	r.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, raw))
}

// begin makes the server run a program for a minute and returns when it runs. mark identifies the program on the host.
func (r *raw) begin() (mark string) {
	mark = fmt.Sprintf("6%d", time.Now().UnixNano()%1_000_000_000)
	r.call(1, "shell_execute", args{"commands": []string{"true"}})
	r.line()
	r.call(2, "shell_execute", args{"commands": []string{"sleep", mark}, "timeout": 100})
	require.Eventually(r.t, func() bool { return runs(mark) }, 30*time.Second, 20*time.Millisecond)
	return mark
}

// runs looks for a `sleep` of that time among the host's processes.
func runs(mark string) bool {
	all, _ := os.ReadDir("/proc")
	for _, p := range all {
		line, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline")
		if strings.HasPrefix(string(line), "sleep\x00"+mark) {
			return true
		}
	}
	return false
}

// ends waits for the server's end, or kills the server.
func (r *raw) ends() (code int) {
	timer := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, r.out)
	_ = r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

func TestTheEndOfTheInputEndsServerProgramAndSession(t *testing.T) {
	r := newWorld(t).needsPodman().raw()
	mark := r.begin()
	require.NoError(t, r.in.Close())
	assert.Zero(t, r.ends())
	assert.False(t, runs(mark))
}

func TestASignalEndsServerProgramAndSession(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		t.Run(sig.String(), func(t *testing.T) {
			r := newWorld(t).needsPodman().raw()
			mark := r.begin()
			require.NoError(t, r.cmd.Process.Signal(sig))
			assert.Equal(t, code, r.ends())
			assert.False(t, runs(mark))
		})
	}
}

// beginOver makes a server on HTTP run a program, in a named session or in the connection's. The call ends with ctx.
func beginOver(ctx context.Context, c *client, session string) (mark string) {
	mark = fmt.Sprintf("7%d", time.Now().UnixNano()%1_000_000_000)
	with := func(a args) args {
		if session != "" {
			a["session"] = session
		}
		return a
	}
	c.call("shell_execute", with(args{"commands": []string{"true"}}))
	go func() {
		_, _ = c.CallTool(ctx, &sdk.CallToolParams{Name: "shell_execute", Arguments: with(args{"commands": []string{"sleep", mark}, "timeout": 100})})
	}()
	require.Eventually(c.t, func() bool { return runs(mark) }, 30*time.Second, 20*time.Millisecond)
	return mark
}

func TestOverHTTPASignalEndsEverything(t *testing.T) {
	s := newWorld(t).needsPodman().serve("127.0.0.1:0")
	mark := beginOver(t.Context(), s.connect("2025-11-25"), "")
	began := time.Now()
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.silent
	assert.Less(t, time.Since(began), 30*time.Second)
	_ = s.cmd.Wait()
	assert.Equal(t, 143, s.cmd.ProcessState.ExitCode())
	assert.False(t, runs(mark))
}

func TestOverHTTPTheProgramEndsWithItsCaller(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			c := newWorld(t).needsPodman().serve("127.0.0.1:0").connect(version)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			session := ""
			if version == "2026-07-28" {
				session = c.call("session_open", args{})["session"].(string)
			}
			mark := beginOver(ctx, c, session)
			cancel()
			assert.Eventually(t, func() bool { return !runs(mark) }, 30*time.Second, 20*time.Millisecond)
		})
	}
}

func TestACallThatIsTooLongIsAnErrorOfItsTool(t *testing.T) {
	r := newWorld(t).raw()
	go r.call(1, "write_file", args{"file_path": "a", "content": strings.Repeat("x", 20_000_000)})
	line := r.line()
	assert.Contains(t, line, `"isError":true`)
	assert.Contains(t, line, `"kind":"too_large"`)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	require.NoError(t, err)
	assert.Less(t, kib(t, string(status), "VmHWM"), 128<<10, "memory does not grow with the call")
	require.NoError(t, r.in.Close())
	assert.Zero(t, r.ends())
}

// A client that sends requests without reading answers can't make the server grow.
func TestAClientThatNeverReadsHoldsNoMemory(t *testing.T) {
	r := newWorld(t).raw()
	r.call(1, "write_file", args{"file_path": "a", "content": strings.Repeat("line\n", 9000)})
	r.line()
	for i := range 400 {
		r.call(i+2, "read_file", args{"file_path": "a"})
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	require.NoError(t, err)
	assert.Less(t, kib(t, string(status), "VmRSS"), 128<<10)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 143, r.ends())
}

func kib(t *testing.T, status, name string) int {
	t.Helper()
	for line := range strings.Lines(status) {
		var n int
		if _, err := fmt.Sscanf(line, name+": %d kB", &n); err == nil {
			return n
		}
	}
	t.Fatalf("no %s in the status", name)
	return 0
}
