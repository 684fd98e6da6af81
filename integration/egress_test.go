package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// fetch is Python that prints the content of a URL.
const fetch = `import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode(), end="")`

// bare runs a program without the variables that name the proxy.
var bare = []string{"env", "-u", "http_proxy", "-u", "HTTP_PROXY", "-u", "https_proxy", "-u", "HTTPS_PROXY", "-u", "all_proxy", "-u", "ALL_PROXY"}

// served is a server of this machine, and the rule that allows it.
func served(t *testing.T, handler http.HandlerFunc) (rule, url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	port := l.Addr().(*net.TCPAddr).Port
	return fmt.Sprintf("host:%d", port), fmt.Sprintf("http://host.wisbox:%d/", port)
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello "+r.Host+"\n") }

func run(t *testing.T, s *wisbox.Session, argv ...string) (out string, res sandbox.Result) {
	t.Helper()
	var b bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: argv, Stdout: &b, Stderr: &b, Timeout: 2 * time.Minute})
	require.NoError(t, err)
	return b.String(), res
}

// TestEgressWithoutARuleIsNothing: without a rule there is no variable, no file, no listener, no sysctl.
func TestEgressWithoutARuleIsNothing(t *testing.T) {
	s := open(t, nil)
	assert.Equal(t, "", output(t, s, `env | grep -i proxy; ls -A /run/secrets; tail -qn +2 /proc/net/tcp /proc/net/udp`))
	if env.isolation != sandbox.IsolationGVisor {
		assert.Equal(t, "1024\n", output(t, s, `cat /proc/sys/net/ipv4/ip_unprivileged_port_start`))
	}
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	assert.Nil(t, in.Egress)
	assert.NoFileExists(t, filepath.Join(env.root, "sessions", s.ID(), "egress.jsonl"))
}

// TestEgressReachesWhatIsAllowed through the proxy, and for programs without proxy support.
func TestEgressReachesWhatIsAllowed(t *testing.T) {
	rule, url := served(t, hello)
	s := open(t, &wisbox.SessionOptions{Allow: []string{rule}})
	want := "hello " + strings.Trim(strings.TrimPrefix(url, "http://"), "/") + "\n"
	out, res := run(t, s, "python3", "-c", fetch, url)
	assert.Equal(t, want, out)
	assert.Empty(t, res.NetworkDenied)
	out, _ = run(t, s, append(bare, "python3", "-c", fetch, url)...)
	assert.Equal(t, want, out, "transparently")
	in, err := s.Inspect(t.Context())
	require.NoError(t, err)
	require.NotNil(t, in.Egress)
	assert.True(t, in.Egress.Serves)
	assert.True(t, in.Egress.Transparent)
	assert.Positive(t, in.Egress.Traffic.In)
	assert.Empty(t, in.Egress.Denied)
}

// TestEgressVariablesOfTheSessionWin: the session's own proxy variables take precedence.
func TestEgressVariablesOfTheSessionWin(t *testing.T) {
	rule, _ := served(t, hello)
	s := open(t, &wisbox.SessionOptions{Allow: []string{rule}, Env: map[string]string{"http_proxy": "http://mine:1"}})
	assert.Equal(t, "http://mine:1 http://127.0.0.1:3128\n", output(t, s, "echo $http_proxy $HTTP_PROXY"))
}

// TestEgressLeavesTheSessionItsOwnPorts: a rule for another host takes none of them away, whatever a program's library
// makes of NO_PROXY.
func TestEgressLeavesTheSessionItsOwnPorts(t *testing.T) {
	rule, _ := served(t, hello)
	ownPorts(t, open(t, &wisbox.SessionOptions{Allow: []string{rule}}))
}

func ownPorts(t *testing.T, s *wisbox.Session) {
	t.Helper()
	out, res := run(t, s, "bash", "-c", `echo mine >index.html; mkdir second && echo second >second/index.html
python3 -m http.server 8000 >log 2>&1 & python3 -m http.server -d second --bind 127.0.0.2 8002 >>log 2>&1 & python3 -m http.server --bind ::1 8003 >>log 2>&1 &
python3 - <<'.'
import os, socket, time, urllib.request
for at in ("127.0.0.1", 8000), ("127.0.0.2", 8002), ("::1", 8003):
    while True:
        try: socket.create_connection(at).close(); break
        except OSError: time.sleep(.05)
names = "localhost:8000 127.0.0.1:8000 0.0.0.0:8000 127.0.0.9:8000 app.localhost:8000 127.0.0.2:8002 [::1]:8003 [::]:8003".split()
for no_proxy in os.environ["no_proxy"], "":
    os.environ["no_proxy"] = no_proxy
    for name in names:
        try: print(name, urllib.request.urlopen("http://" + name, timeout=60).read().decode(), end="")
        except OSError as e: print(name, e, getattr(e, "read", str)())
.
for name in localhost:8000 0.0.0.0:8000 127.0.0.2:8002; do curl -sS --noproxy '' http://$name; curl -sS --noproxy '' -p http://$name; done
kill $(jobs -p)`)
	require.Zero(t, res.ExitCode)
	const each = "localhost:8000 mine\n127.0.0.1:8000 mine\n0.0.0.0:8000 mine\n127.0.0.9:8000 mine\napp.localhost:8000 mine\n127.0.0.2:8002 second\n[::1]:8003 mine\n[::]:8003 mine\n"
	assert.Equal(t, each+each+"mine\nmine\nmine\nmine\nsecond\nsecond\n", out)
	assert.Empty(t, res.NetworkDenied)
}

// TestEgressDenialsTeach: the result of the call names the refused host and the rule that allows it.
func TestEgressDenialsTeach(t *testing.T) {
	rule, _ := served(t, hello)
	s := open(t, &wisbox.SessionOptions{Allow: []string{rule}})
	const url = "http://pypi.example.org/"
	const said = "pypi.example.org:80: no rule allows it; to allow it: --allow pypi.example.org:80"
	_, res := run(t, s, "python3", "-c", fetch, url)
	assert.Equal(t, []string{said}, res.NetworkDenied)
	assert.NotZero(t, res.ExitCode)

	called := call(t, s, "shell_execute", args{"commands": []string{"python3", "-c", "import urllib.request as u\nu.urlopen('" + url + "')"}})
	assert.Equal(t, []any{said}, called["network_denied"])
	called = call(t, s, "evaluate_python", args{"code": "import urllib.request as u\nu.urlopen('" + url + "')", "sandbox": "container"})
	assert.Equal(t, []any{said}, called["network_denied"])
	called = call(t, s, "shell_execute", args{"commands": []string{"true"}})
	assert.NotContains(t, called, "network_denied", "what another call was refused is not this one's")
}

// TestEgressOfOneSessionIsNoOthers, nor the machine's.
func TestEgressOfOneSessionIsNoOthers(t *testing.T) {
	rule, url := served(t, hello)
	s, other := open(t, &wisbox.SessionOptions{Allow: []string{rule}}), open(t, nil)
	_, res := run(t, s, "python3", "-c", fetch, url)
	require.Zero(t, res.ExitCode)
	out, res := run(t, other, "env", "http_proxy=http://127.0.0.1:3128", "python3", "-c", fetch, url)
	assert.NotZero(t, res.ExitCode)
	assert.Contains(t, out, "Connection refused")
	listening, err := os.ReadFile("/proc/net/tcp")
	require.NoError(t, err)
	assert.NotContains(t, string(listening), ":0C38 00000000:0000 0A", "this machine's port 3128")
}

// TestEgressRulesChangeWhileAConnectionIsOpen: what no rule allows any more is reset, so
// that no program takes it for complete.
func TestEgressRulesChangeWhileAConnectionIsOpen(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	rule, url := served(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
		w.(http.Flusher).Flush()
		close(began)
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	defer close(end)
	s := open(t, &wisbox.SessionOptions{Allow: []string{rule}})
	var out string
	var all sync.WaitGroup
	all.Go(func() { out, _ = run(t, s, append(bare, "python3", "-c", fetch, url)...) })
	<-began
	e, err := s.Deny(t.Context(), "host.wisbox")
	require.NoError(t, err)
	assert.Equal(t, []string{"host.wisbox"}, e.Deny)
	all.Wait()
	assert.Contains(t, out, "ConnectionResetError")
	e, err = s.Allow(t.Context(), rule)
	require.NoError(t, err, "the same text isn't there: the denial stays")
	assert.Equal(t, []string{"host.wisbox"}, e.Deny)
}

// TestEgressOpensWhileTheSessionRuns: a rule that comes later works at once, and the last
// one that goes closes the port.
func TestEgressOpensWhileTheSessionRuns(t *testing.T) {
	rule, url := served(t, hello)
	s := open(t, nil)
	out, _ := run(t, s, "python3", "-c", fetch, url)
	require.Contains(t, out, "name resolution")
	_, err := s.Allow(t.Context(), "no..name")
	require.Equal(t, tool.Invalid, kind(err))
	e, err := s.Allow(t.Context(), rule)
	require.NoError(t, err)
	assert.NotEmpty(t, e.Allow)
	out, res := run(t, s, "python3", "-c", fetch, url)
	require.Zero(t, res.ExitCode, out)
	_, err = s.Deny(t.Context(), "host.wisbox")
	require.NoError(t, err)
	_, res = run(t, s, "python3", "-c", fetch, url)
	require.NotZero(t, res.ExitCode)
}

// TestEgressOpensAgainAfterARestart: the container then has a new network.
func TestEgressOpensAgainAfterARestart(t *testing.T) {
	rule, url := served(t, hello)
	s := open(t, &wisbox.SessionOptions{Allow: []string{rule}})
	require.Contains(t, recovered(t, s, "python3 -c '"+fetch+"' "+url), "hello")
	restart(t, s.ID())
	require.Contains(t, recovered(t, s, "python3 -c '"+fetch+"' "+url), "hello")
	e, err := s.Egress(t.Context())
	require.NoError(t, err)
	assert.True(t, e.Transparent)
}

// TestEgressOfAProgramThatFloods: the program stays within its bounds, and the next one is served.
func TestEgressOfAProgramThatFloods(t *testing.T) {
	hosttest.Slow(t)
	rule, url := served(t, hello)
	s, other := open(t, &wisbox.SessionOptions{Allow: []string{rule}}), open(t, &wisbox.SessionOptions{Allow: []string{rule}})
	_, res := run(t, s, "true")
	require.Zero(t, res.ExitCode)
	before := descriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reader, writer := io.Pipe()
	var all sync.WaitGroup
	all.Go(func() {
		_, _ = s.Run(ctx, sandbox.Cmd{Stdout: writer, Argv: []string{"python3", "-uc", `import socket, time
held = []
for i in range(3000):
    try:
        c = socket.socket(); c.settimeout(0.2); c.connect(("127.0.0.1", 3128)); c.send(b"GET http://host.wisbox:1/ HT")
        held.append(c)
    except OSError: pass
    if i == 1000: print("many")
time.sleep(600)`}})
		writer.Close()
	})
	line := make([]byte, 5)
	_, err := io.ReadFull(reader, line)
	require.NoError(t, err)
	assert.Less(t, descriptors(t)-before, 600, "256 connections of programs, and what goes with them")
	out, res := run(t, other, "python3", "-c", fetch, url)
	assert.Zero(t, res.ExitCode, out)
	cancel()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	all.Wait()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, res := run(t, s, "python3", "-c", fetch, url)
		assert.Zero(c, res.ExitCode)
	}, time.Minute, 100*time.Millisecond)
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// TestEgressOfAKilledHolder: the port is closed, the session keeps its rules, and the log is complete.
func TestEgressOfAKilledHolder(t *testing.T) {
	began, end := make(chan struct{}, 9), make(chan struct{})
	rule, url := served(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			hello(w, r)
			return
		}
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
		w.(http.Flusher).Flush()
		began <- struct{}{}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	defer close(end)
	h := newHome(t)
	h.do("session", "create", "box", "--allow", rule)
	h.do("exec", "box", "--", "true")
	cmd := h.start("exec", "box", "--", "python3", "-c", fetch, url+"large")
	<-began
	killHolder(t, "box", h)
	require.Error(t, cmd.Wait())
	assert.Contains(t, h.do("exec", "box", "--", "python3", "-c", fetch, url), "hello")
	assert.Contains(t, h.do("log", "verify", "box"), "connections:")
	assert.Contains(t, h.do("log", "box"), "connections made")
	assert.Contains(t, h.do("log", "box", "--network"), "host.wisbox")
	assert.Contains(t, h.do("session", "egress", "box"), rule)

	path := filepath.Join(h.cache, "sessions/box/egress.jsonl")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(raw, []byte("host.wisbox"), []byte("best.wisbox"), 1), 0o600))
	out, _, code := command(t, h.cache, "log", "verify", "box")
	assert.Equal(t, 1, code)
	assert.Contains(t, out, "egress.jsonl:")
	h.do("session", "rm", "box")
	h.requireNothing()
}

// TestEgressThatIsKilledLooksLikeNoEnd: some answers end only with their connection, so programs must see a reset if
// the holder is killed.
func TestEgressThatIsKilledLooksLikeNoEnd(t *testing.T) {
	const programs = 20
	began := make(chan struct{}, programs)
	rule, url := served(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<16))
		w.(http.Flusher).Flush()
		began <- struct{}{}
		<-r.Context().Done()
	})
	h := newHome(t)
	h.do("session", "create", "box", "--allow", rule)
	h.do("exec", "box", "--", "true")
	cmd := h.start("exec", "box", "--", "python3", "-c", `import os, socket, sys, threading
host, port = sys.argv[1].split("/")[2].split(":")
def read(i):
    c = socket.create_connection((host, int(port)))
    c.sendall(b"GET /large HTTP/1.0\r\nHost: %b:%b\r\n\r\n" % (host.encode(), port.encode()))
    try:
        while c.recv(1 << 16): pass
        os.mkdir("/workspace/complete-%d" % i)
    except ConnectionResetError:
        pass
for i in range(`+fmt.Sprint(programs)+`): threading.Thread(target=read, args=(i,)).start()`, url)
	for range programs {
		<-began
	}
	killHolder(t, "box", h)
	require.Error(t, cmd.Wait())
	assert.Empty(t, h.do("exec", "box", "--", "ls", "/workspace"))
	h.do("session", "rm", "box")
	h.requireNothing()
}

// TestEgressIsChangedByItsUserAlone: wrong rules start nothing, and agents have no tool that changes rules.
func TestEgressIsChangedByItsUserAlone(t *testing.T) {
	h := newHome(t)
	for rule, part := range map[string]string{
		"10.0.0.1": "IP address", "*": "public", "*.com": "com", "a_b.example.com": "a_b", "example.com:0": `"0"`, "https://example.com": "scheme", "nodot": "dot",
	} {
		assert.Contains(t, h.fail("run", "--allow", rule, "--", "true"), part, rule)
	}
	assert.Contains(t, h.fail("run", "--allow", "example.com", "--inject", "example.com:X-Key=NONE", "--", "true"), "--secret NONE=FILE")
	assert.Empty(t, h.sessions())
	for _, t2 := range wisbox.ToolSet().Tools() {
		assert.NotContains(t, t2.Name, "egress")
	}
}
