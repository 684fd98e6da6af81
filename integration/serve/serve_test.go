// Package serve drives `wisbox serve` with E2B's published SDK from npm.
package serve

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

const hangGuard = 30 * time.Second

var binary = hosttest.Binary

// world is a separate state root for servers.
type world struct {
	t     *testing.T
	bin   string
	cache string
	key   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bin: binary(t), cache: filepath.Join(t.TempDir(), "state"), key: "e2b_" + random()}
	out, err := w.command("run", "--", "true").CombinedOutput()
	if err != nil {
		hosttest.NeedPodman(t, string(out))
	}
	t.Cleanup(func() {
		for _, id := range w.sandboxes() {
			out, err := w.command("session", "rm", id).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		}
		made, _ := filepath.Glob(filepath.Join(w.cache, "templates", strings.Repeat("?", 20)))
		for _, path := range made {
			out, err := w.command("template", "rm", filepath.Base(path)).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		}
	})
	return w
}

func random() string {
	raw := make([]byte, 20)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+w.cache, "WISBOX_SERVE_KEYS="+w.key)
	return cmd
}

func (w *world) wisbox(args ...string) string {
	w.t.Helper()
	out, err := w.command(args...).CombinedOutput()
	require.NoError(w.t, err, "%v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func (w *world) sandboxes() (ids []string) {
	found, _ := filepath.Glob(filepath.Join(w.cache, "sessions", "*"))
	for _, path := range found {
		ids = append(ids, filepath.Base(path))
	}
	return ids
}

// server is a running `wisbox serve`.
type server struct {
	w    *world
	url  string
	cmd  *exec.Cmd
	log  *bytes.Buffer
	read chan struct{}
}

// serve starts a server, and waits until it prints its address.
func (w *world) serve(flags ...string) *server {
	w.t.Helper()
	s := &server{w: w, log: &bytes.Buffer{}, read: make(chan struct{})}
	s.cmd = w.command(append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	pipe, err := s.cmd.StderrPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, s.cmd.Start())
	lines := bufio.NewReader(io.TeeReader(pipe, s.log))
	for s.url == "" {
		line, err := lines.ReadString('\n')
		require.NoError(w.t, err, "%s", s.log)
		_, after, found := strings.Cut(line, "serving on ")
		if found {
			s.url = strings.TrimSpace(after)
		}
	}
	go func() {
		defer close(s.read)
		_, _ = io.Copy(io.Discard, lines)
	}()
	w.t.Cleanup(func() { s.stop() })
	return s
}

// stop interrupts the server, and returns its log.
func (s *server) stop() string {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		<-s.read
		_ = s.cmd.Wait()
	}
	return s.log.String()
}

// domain returns the domain of the ports' hosts.
func (s *server) domain() string { return "localhost:" + s.url[strings.LastIndexByte(s.url, ':')+1:] }

// script runs a script of testdata with the SDK, with the server in its environment.
func (s *server) script(name string, args ...string) string {
	t := s.w.t
	t.Helper()
	dir := filepath.Dir(hosttest.NodePackages(t, "testdata/package.json"))
	text, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	beside := filepath.Join(dir, fmt.Sprintf("%s-%s", random()[:8], name)) // node finds the packages from there
	require.NoError(t, os.WriteFile(beside, text, 0o600))
	defer os.Remove(beside)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/node/bin/node"), append([]string{beside}, args...)...)
	cmd.Env = append(os.Environ(), "E2B_API_URL="+s.url, "E2B_SANDBOX_URL="+s.url, "E2B_API_KEY="+s.w.key, "E2B_DOMAIN="+s.domain())
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	return string(out)
}

// ask sends a request to the control API.
func (s *server) ask(key, method, path, body string, v any) int {
	t := s.w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*hangGuard)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-API-KEY", key)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	if v != nil {
		require.NoError(t, json.NewDecoder(res.Body).Decode(v))
	}
	return res.StatusCode
}

// text returns an answer of the control API that isn't JSON.
func (s *server) text(key, path string) string {
	t := s.w.t
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(t, err)
	r.Header.Set("X-API-KEY", key)
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode, "%s", body)
	return string(body)
}

func (s *server) create(key string) string {
	s.w.t.Helper()
	var made struct {
		SandboxID string `json:"sandboxID"`
	}
	require.Equal(s.w.t, http.StatusCreated, s.ask(key, "POST", "/v2/sandboxes", `{"timeout":300}`, &made))
	return made.SandboxID
}

// port gets a path from a port of a sandbox, by its host name.
func (s *server) port(id string, port int, path string) (int, string) {
	t := s.w.t
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	require.NoError(t, err)
	r.Host = fmt.Sprintf("%d-%s.%s", port, id, s.domain())
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// TestTheSDKs runs them as published on npm. Their sandboxes leave nothing.
func TestTheSDKs(t *testing.T) {
	for _, script := range []string{"control.mjs", "commands.mjs", "code.mjs", "agents.mjs"} {
		t.Run(script, func(t *testing.T) {
			w := newWorld(t)
			s := w.serve()
			assert.Contains(t, s.script(script), "done")
			require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, hangGuard, time.Millisecond, "what was killed is gone")
			log := s.stop()
			assert.NotContains(t, log, w.key)
		})
	}
}

// TestTheDocsE2BJob runs the first commands of docs/serve.md on another port, and checks that they include the
// README's.
func TestTheDocsE2BJob(t *testing.T) {
	w := newWorld(t)
	commands := firstBlock(t, "../../docs/serve.md", "# A server")
	for line := range strings.Lines(firstBlock(t, "../../README.md", "### Point E2B code at it")) {
		assert.Contains(t, commands, strings.TrimSpace(line))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	require.NoError(t, listener.Close())
	dir := t.TempDir()
	modules := filepath.Join(filepath.Dir(hosttest.NodePackages(t, "testdata/package.json")), "node_modules")
	require.NoError(t, os.Symlink(modules, filepath.Join(dir, "node_modules")))
	require.NoError(t, os.Symlink(w.bin, filepath.Join(dir, "wisbox")))
	script := strings.NewReplacer("3000", port, "npm install", ": npm install",
		"wisbox serve &", "wisbox serve --listen 127.0.0.1:"+port+" & trap 'kill $!; wait' EXIT; until curl -s http://127.0.0.1:"+port+"; do sleep 0.1; done").Replace(commands)
	cmd := exec.CommandContext(t.Context(), "bash", "-ec", script)
	cmd.Dir = dir
	cmd.Env = slices.Concat(w.command().Env, []string{"WISBOX_SERVE_KEYS=", "PATH=" + dir + ":" + filepath.Join(modules, "node/bin") + ":" + os.Getenv("PATH")})
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "\n42\n")
}

// firstBlock returns the first shell block below a heading of a page.
func firstBlock(t *testing.T, path, heading string) string {
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	_, below, found := strings.Cut(string(page), heading)
	require.True(t, found)
	_, block, found := strings.Cut(below, "```sh\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	return block
}

// TestAServerThatStartsAgainFindsItsSandboxes with their programs and ports.
func TestAServerThatStartsAgainFindsItsSandboxes(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--domain", "sandbox.test:8080")
	id := s.create(w.key)
	status, body := s.port(id, 8000, "/")
	assert.Equal(t, http.StatusBadGateway, status, body)
	assert.Contains(t, body, "port is not open")
	w.wisbox("exec", "--detach", "--wait-port", "8000", id, "--", "sh", "-c", "echo from inside > note; exec python3 -m http.server")
	status, body = s.port(id, 8000, "/note")
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "from inside\n", body)
	log := s.stop()
	assert.NotContains(t, log, id)

	s = w.serve("--domain", "sandbox.test:8080")
	var d struct {
		State, Domain string
	}
	require.Equal(t, http.StatusOK, s.ask(w.key, "GET", "/sandboxes/"+id, "", &d))
	assert.Equal(t, "running", d.State)
	assert.Equal(t, "sandbox.test:8080", d.Domain)
	status, body = s.port(id, 8000, "/note")
	assert.Equal(t, http.StatusOK, status, body)
	out, err := w.command("serve", "--listen", "127.0.0.1:0").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "another wisbox serve")

	assert.Equal(t, http.StatusNoContent, s.ask(w.key, "POST", "/sandboxes/"+id+"/timeout", `{"timeout":0}`, nil))
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 0 }, hangGuard, time.Millisecond, "its time is over")
	status, _ = s.port(id, 8000, "/note")
	assert.Equal(t, http.StatusBadGateway, status)
}

func TestKeysOfTheCommandLine(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	key := w.wisbox("serve", "key", "create", "--name", "app", "--sandboxes", "1")
	id := s.create(key)
	assert.Equal(t, http.StatusTooManyRequests, s.ask(key, "POST", "/sandboxes", `{}`, nil))
	assert.Equal(t, http.StatusNotFound, s.ask(w.key, "GET", "/sandboxes/"+id, "", nil), "another key's")
	var listed []struct {
		ID, Name string
		Taken    struct {
			Sandboxes int64
			Disk      int64 `json:"disk_bytes"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(w.wisbox("serve", "key", "list", "--json")), &listed))
	require.Len(t, listed, 1)
	assert.Equal(t, int64(1), listed[0].Taken.Sandboxes)
	assert.Equal(t, int64(2<<30+2<<30+336<<20), listed[0].Taken.Disk, "its workspace, its snapshots, its logs")
	assert.Contains(t, w.wisbox("serve", "key", "list"), "1 of 1")
	next := w.wisbox("serve", "key", "create", "--replace", listed[0].ID)
	assert.Equal(t, http.StatusOK, s.ask(next, "GET", "/sandboxes/"+id, "", nil))
	w.wisbox("serve", "key", "revoke", listed[0].ID)
	assert.Equal(t, http.StatusUnauthorized, s.ask(key, "GET", "/sandboxes/"+id, "", nil))
	assert.Equal(t, http.StatusNoContent, s.ask(next, "DELETE", "/sandboxes/"+id, "", nil))
	assert.Equal(t, http.StatusForbidden, s.ask(next, "GET", "/metrics", "", nil))
	watcher := w.wisbox("serve", "key", "create", "--metrics", "--memory", "1m")
	assert.Equal(t, http.StatusTooManyRequests, s.ask(watcher, "POST", "/sandboxes", `{}`, nil), "a sandbox has more memory than that")
	numbers := s.text(watcher, "/metrics")
	assert.Contains(t, numbers, "wisbox_serve_sandboxes{state=\"running\"} 0")
	assert.Contains(t, numbers, `wisbox_serve_requests_total{route="POST /sandboxes",status="429"} 2`)
	assert.Contains(t, numbers, "wisbox_sessions ")
	said := s.stop()
	changes, err := os.ReadFile(filepath.Join(w.cache, "serve", "audit.jsonl"))
	require.NoError(t, err)
	audit, err := os.ReadFile(filepath.Join(w.cache, "serve", "audit-reads.jsonl"))
	require.NoError(t, err)
	assert.Contains(t, string(audit), `"key":"`+listed[0].ID+`","route":"POST /sandboxes","status":429`)
	audit = append(audit, changes...)
	for _, secret := range []string{key, next, watcher, id} {
		assert.NotContains(t, said, secret)
		assert.NotContains(t, numbers, secret)
		assert.NotContains(t, string(audit), secret)
	}
}

// TestAServersDiskIsOfAllItsKeys: a sandbox of another key finds no room.
func TestAServersDiskIsOfAllItsKeys(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--total-disk", "5g", "--ready", "1")
	s.create(w.key)
	var said struct{ Message string }
	other := w.wisbox("serve", "key", "create", "--disk", "40g")
	assert.Equal(t, http.StatusServiceUnavailable, s.ask(other, "POST", "/sandboxes", `{}`, &said))
	assert.Contains(t, said.Message, "at most 5GiB for the sandboxes and snapshots of all keys")
	assert.Contains(t, w.wisbox("serve", "key", "list"), "0B of 40GiB")
}

// TestTheNetworkOfASandboxIsReplaced while it runs, and stays so in the next server.
func TestTheNetworkOfASandboxIsReplaced(t *testing.T) {
	w := newWorld(t)
	s := w.serve("--allow-internet")
	id := s.create(w.key)
	rules := func() string { return w.wisbox("session", "egress", id, "--json") }
	assert.Contains(t, rules(), `"public"`)
	put := func(body string) {
		require.Equal(t, http.StatusNoContent, s.ask(w.key, "PUT", "/sandboxes/"+id+"/network", body, nil))
	}
	put(`{"allowOut":["one.example.com"],"denyOut":["0.0.0.0/0"]}`)
	assert.Contains(t, rules(), `"one.example.com"`)
	assert.NotContains(t, rules(), `"public"`)
	put(`{"allow_internet_access":false}`)
	assert.NotContains(t, rules(), `"one.example.com"`)
	put(`{"allowOut":["two.example.com"],"denyOut":["0.0.0.0/0"]}`)
	s.stop()
	s = w.serve("--allow-internet")
	assert.Contains(t, rules(), `"two.example.com"`)
	var d struct{ Network struct{ AllowOut []string } }
	require.Equal(t, http.StatusOK, s.ask(w.key, "GET", "/sandboxes/"+id, "", &d))
	assert.Equal(t, []string{"two.example.com"}, d.Network.AllowOut)
	s.stop()
	s = w.serve()
	var forks []struct{ Sandbox struct{ SandboxID string } }
	require.Equal(t, http.StatusCreated, s.ask(w.key, "POST", "/sandboxes/"+id+"/fork", `{}`, &forks))
	said := w.wisbox("session", "egress", forks[0].Sandbox.SandboxID, "--json")
	assert.NotContains(t, said, "two.example.com", "a server that opens nothing forks nothing open")
}

// TestSandboxesAreReadyBeforeAnybodyAsks, and end with the server if nobody took them.
func TestSandboxesAreReadyBeforeAnybodyAsks(t *testing.T) { takesReady(t) }

// TestReadySandboxesAreForClientsWithANetwork, too.
func TestReadySandboxesAreForClientsWithANetwork(t *testing.T) {
	w, id := takesReady(t, "--allow-internet")
	assert.Contains(t, w.wisbox("session", "egress", id, "--json"), `"public"`)
}

// takesReady makes a client take a ready sandbox, and returns its ID.
func takesReady(t *testing.T, flags ...string) (w *world, id string) {
	t.Helper()
	w = newWorld(t)
	s := w.serve(append(flags, "--ready", "1")...)
	require.Eventually(t, func() bool { return len(w.sandboxes()) == 1 }, hangGuard, time.Millisecond)
	spare := w.sandboxes()[0]
	var killed []string
	for id != spare { // the first client may be faster than the ready sandbox
		if id != "" {
			require.Equal(t, http.StatusNoContent, s.ask(w.key, "DELETE", "/sandboxes/"+id, "", nil))
			killed = append(killed, id)
		}
		id = s.create(w.key)
	}
	assert.Equal(t, "user", w.wisbox("exec", id, "--", "id", "-un"))
	require.Eventually(t, func() bool {
		there := w.sandboxes()
		gone := !slices.ContainsFunc(killed, func(id string) bool { return slices.Contains(there, id) })
		return gone && len(there) > 1
	}, hangGuard, time.Millisecond, "the next one")
	log := s.stop()
	assert.Equal(t, []string{id}, w.sandboxes(), log)
	return w, id
}
