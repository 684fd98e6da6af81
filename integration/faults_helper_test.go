package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// home is a test's own state root, used by processes that are killed.
type home struct {
	t     *testing.T
	cache string
	m     *wisbox.Manager // on the state root, in this process; nil until needed
}

func newHome(t *testing.T) *home {
	t.Helper()
	need(t)
	h := &home{t: t, cache: filepath.Join(t.TempDir(), "c")}
	t.Cleanup(h.removeAll)
	return h
}

func (h *home) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary(h.t), args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+h.cache, "XDG_STATE_HOME="+h.cache+"-state") // the history of prompts
	return cmd
}

// do runs a command that must succeed and returns its stdout.
func (h *home) do(args ...string) string {
	h.t.Helper()
	out, errs, code := command(h.t, h.cache, args...)
	require.Zero(h.t, code, "%v: %s", args, errs)
	return out
}

// fail runs a command that must fail and returns its stderr.
func (h *home) fail(args ...string) string {
	h.t.Helper()
	_, errs, code := command(h.t, h.cache, args...)
	require.NotZero(h.t, code, "%v", args)
	require.NotContains(h.t, errs, "panic")
	return errs
}

// start starts a command that the test ends.
func (h *home) start(args ...string) *exec.Cmd {
	h.t.Helper()
	return h.begin(h.command(args...))
}

func (h *home) begin(cmd *exec.Cmd) *exec.Cmd {
	h.t.Helper()
	require.NoError(h.t, cmd.Start())
	h.t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

func killed(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	_ = cmd.Process.Kill() // it may have ended by itself
	_ = cmd.Wait()
}

// killedAfter kills a command after a time: the time is the fault.
func killedAfter(t *testing.T, wait time.Duration, cmd *exec.Cmd) {
	t.Helper()
	time.Sleep(wait)
	killed(t, cmd)
}

// helper starts this test binary as a process on the state root, see faultHelpers, and returns its output.
func (h *home) helper(mode string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	h.t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), helperEnv+"="+mode, "WISBOX_CACHE="+h.cache)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(h.t, err)
	return h.begin(cmd), bufio.NewScanner(out)
}

// manager returns a Manager on the state root, in this process.
func (h *home) manager() *wisbox.Manager {
	h.t.Helper()
	if h.m == nil {
		m, err := wisbox.NewManager(h.t.Context(), &wisbox.Options{CacheDir: h.cache})
		require.NoError(h.t, err)
		h.t.Cleanup(func() { _ = m.Close() })
		h.m = m
	}
	return h.m
}

// containers returns the number of the state root's containers.
func (h *home) containers() int {
	h.t.Helper()
	list, err := h.manager().Backend().List(h.t.Context())
	require.NoError(h.t, err)
	return len(list)
}

func (h *home) sessions() []string {
	h.t.Helper()
	entries, err := h.manager().List(h.t.Context())
	require.NoError(h.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.ID)
	}
	return names
}

// requireNothing checks that after a prune nothing is left. A container that Podman was still creating for a dead
// process may need a second prune.
func (h *home) requireNothing() {
	h.t.Helper()
	require.EventuallyWithT(h.t, func(c *assert.CollectT) {
		h.do("prune")
		assert.Empty(c, h.sessions(), "sessions are left after prune")
		assert.Zero(c, h.containers(), "containers are left after prune")
	}, time.Minute, 200*time.Millisecond)
	trash, err := os.ReadDir(filepath.Join(h.cache, "trash"))
	require.NoError(h.t, err)
	require.Empty(h.t, trash)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(h.t, err)
	require.NotContains(h.t, string(mounts), h.cache)
}

// removeAll removes the leftovers of a failed test.
func (h *home) removeAll() {
	m, err := wisbox.NewManager(context.Background(), &wisbox.Options{CacheDir: h.cache})
	if err != nil {
		return
	}
	defer m.Close()
	entries, _ := m.List(context.Background())
	for _, e := range entries {
		_ = m.Remove(context.Background(), e.ID)
	}
	_, _ = m.Prune(context.Background(), false)
}

// mark is a number of seconds that only one test sleeps.
func mark() string { return fmt.Sprintf("7%09d", time.Now().UnixNano()%1_000_000_000) }

// asleep looks for a `sleep` of that time among the host's processes.
func asleep(mark string) bool {
	for _, dir := range processDirs() {
		line, _ := os.ReadFile(dir + "/cmdline")
		if strings.HasPrefix(string(line), "sleep\x00"+mark) {
			return true
		}
	}
	return false
}

func awaitSleep(t *testing.T, mark string) {
	t.Helper()
	require.Eventually(t, func() bool { return asleep(mark) }, time.Minute, 10*time.Millisecond, "the program did not start")
}

func requireAwake(t *testing.T, mark string) {
	t.Helper()
	require.Eventually(t, func() bool { return !asleep(mark) }, 30*time.Second, 20*time.Millisecond, "a process of the program is left")
}

// dialPodman connects to a manager's Podman, past wisbox. If its service has ended, wisbox has to start another one
// first. The last lines of the old service are logged, since it may have crashed.
func dialPodman(ctx context.Context, m *wisbox.Manager) (net.Conn, error) {
	b := m.Backend().(*podman.Backend)
	service, err := b.Service(ctx)
	if err != nil {
		return nil, err
	}
	scheme, socket, _ := strings.Cut(service.URL, "://")
	conn, err := new(net.Dialer).DialContext(ctx, scheme, socket)
	if err == nil {
		return conn, nil
	}
	fmt.Fprintf(os.Stderr, "podman's service has ended: %v\n%s\n", err, lastWords(filepath.Join(env.root, "podman.log")))
	if _, err := b.List(ctx); err != nil { // it notices
		return nil, err
	}
	if service, err = b.Service(ctx); err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(service.URL, "unix://"))
}

// lastWords returns the end of a log, or the beginning of a crash report.
func lastWords(log string) string {
	raw, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	text := string(raw)
	if at := max(strings.LastIndex(text, "fatal error: "), strings.LastIndex(text, "panic: ")); at >= 0 {
		return text[at:min(at+4000, len(text))]
	}
	return text[max(0, len(text)-1000):]
}

// api makes a request of a manager's Podman, past wisbox.
func api(t *testing.T, m *wisbox.Manager, method, path string) (status int, body map[string]any) {
	t.Helper()
	status = apiInto(t, m, method, path, &body)
	return status, body
}

func apiInto(t *testing.T, m *wisbox.Manager, method, path string, body any) (status int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialPodman(ctx, m)
	}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://d/v4.0.0/libpod"+path, nil)
	require.NoError(t, err)
	resp, err := client.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	_ = json.NewDecoder(resp.Body).Decode(body)
	return resp.StatusCode
}

// object returns the name of a session's container, "" if there is none.
func object(t *testing.T, m *wisbox.Manager, session string) string {
	t.Helper()
	list, err := m.Backend().List(t.Context())
	require.NoError(t, err)
	for _, info := range list {
		if info.ID == session {
			return info.Object
		}
	}
	return ""
}

// inspect returns the state of a session's container.
func inspect(t *testing.T, m *wisbox.Manager, session string) map[string]any {
	t.Helper()
	_, body := api(t, m, http.MethodGet, "/containers/"+object(t, m, session)+"/json")
	state, _ := body["State"].(map[string]any)
	return state
}

// inspected returns a number of that state.
func inspected(t *testing.T, m *wisbox.Manager, session, field string) int {
	t.Helper()
	state := inspect(t, m, session)
	n, _ := state[field].(float64)
	require.NotZero(t, n, "%v", state)
	return int(n)
}

// restart restarts a session's container, which gets a new network. The tests' service can't restart gVisor's
// containers, so their sandbox is created again.
func restart(t *testing.T, session string) {
	t.Helper()
	if env.isolation == sandbox.IsolationGVisor {
		kill(t, inspected(t, env.manager, session, "Pid"), syscall.SIGKILL)
		return
	}
	status, body := api(t, env.manager, http.MethodPost, "/containers/"+object(t, env.manager, session)+"/restart?t=0")
	require.Equal(t, http.StatusNoContent, status, "%v", body)
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, sig))
}

// recovered returns the stdout of a script that runs after a fault. The loss of the sandbox may be reported once.
func recovered(t *testing.T, s *wisbox.Session, text string) string {
	t.Helper()
	a, err := try(t, s, "shell_execute", args{"script": text})
	if kind(err) != tool.Unavailable && a.str("status") != "sandbox_lost" {
		require.NoError(t, err)
		return a.str("stdout")
	}
	return output(t, s, text)
}

const helperEnv = "WISBOX_FAULT_HELPER"

// faultHelpers are the functions that this binary runs for tests in separate processes.
var faultHelpers = map[string]func(ctx context.Context, m *wisbox.Manager, args []string) error{
	"write":   helpWrite,
	"count":   helpCount,
	"calls":   helpCalls,
	"raise":   helpRaise,
	"starved": helpStarved,
}

func init() {
	mode := os.Getenv(helperEnv)
	if mode == "" {
		return
	}
	m, err := wisbox.NewManager(context.Background(), nil)
	if err == nil {
		err = faultHelpers[mode](context.Background(), m, os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, mode, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func helpCall(ctx context.Context, s *wisbox.Session, name string, arguments args) (*tool.Result, error) {
	raw, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	return s.Call(ctx, name, raw)
}

const wholeSize = 40_000

// helpWrite writes a file of one letter, and edits it to another, until it is killed.
func helpWrite(ctx context.Context, m *wisbox.Manager, argv []string) error {
	s, err := m.Attach(ctx, argv[0])
	if err != nil {
		return err
	}
	for {
		for _, letter := range []string{"a", "b"} {
			if _, err := helpCall(ctx, s, "write_file", args{"file_path": "f", "content": strings.Repeat(letter, wholeSize), "mode": "overwrite"}); err != nil {
				return err
			}
			other := args{"file_path": "f", "old_string": letter, "new_string": "c", "replace_all": true}
			if _, err := helpCall(ctx, s, "edit_file", other); err != nil {
				return err
			}
			fmt.Println("round")
		}
	}
}

// helpCount raises a counter a given number of times.
func helpCount(ctx context.Context, m *wisbox.Manager, argv []string) error {
	s, err := m.Attach(ctx, argv[0])
	if err != nil {
		return err
	}
	var want, done int
	if _, err := fmt.Sscan(argv[1], &want); err != nil {
		return err
	}
	for done < want {
		if err := raise(ctx, s); err == nil {
			done++
		} else if k := kind(err); k != tool.NoMatch && k != tool.Busy && k != tool.Conflict {
			return err
		}
	}
	fmt.Println(done)
	return s.Close(ctx)
}

func raise(ctx context.Context, s *wisbox.Session) error {
	raw, err := fs.ReadFile(s.Files(), "counter")
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(string(raw), "n=%d.", &n); err != nil {
		return err
	}
	_, err = helpCall(ctx, s, "edit_file", args{"file_path": "counter", "old_string": fmt.Sprintf("n=%d.", n), "new_string": fmt.Sprintf("n=%d.", n+1)})
	return err
}
