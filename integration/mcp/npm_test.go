package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/mcpserver"
)

// npm is a directory of installed packages, pinned by testdata/package.json.
type npm struct {
	t   *testing.T
	dir string
}

func newNPM(t *testing.T) *npm {
	t.Helper()
	return &npm{t, filepath.Dir(hosttest.NodePackages(t, "testdata/package.json"))}
}

func (n *npm) node() string { return filepath.Join(n.dir, "node_modules/node/bin/node") }

// run runs a script of a package, or our own script beside them.
func (n *npm) run(w *world, script string, args ...string) (stdout []byte, stderr string, err error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.node(), append([]string{script}, args...)...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = n.dir, w.command().Env, &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	return out.Bytes(), errs.String(), err
}

const (
	inspectorScript   = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
	conformanceScript = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
)

func (n *npm) inspect(w *world, args ...string) map[string]any {
	n.t.Helper()
	out, errs, err := n.run(w, inspectorScript, append([]string{"--cli"}, args...)...)
	require.NoError(n.t, err, "%v: %s %s", args, out, errs)
	var answer map[string]any
	require.NoError(n.t, json.Unmarshal(out, &answer), "%s", out)
	if len(args) > 0 && args[len(args)-1] == "--strict" {
		assert.NotContains(n.t, errs, "Issue:", "a schema that not every host takes")
	}
	return answer
}

func TestTheInspectorsCommandLine(t *testing.T) {
	n, w := newNPM(t), newWorld(t).needsPodman()
	s := w.serve("127.0.0.1:0")
	for name, target := range map[string][]string{
		"stdio": {w.bin, "mcp"},
		"http":  {s.url(), "--transport", "http", "--header", "Authorization: Bearer " + s.token},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			inspect := func(args ...string) map[string]any {
				return n.inspect(w, append(slices.Clip(target), args...)...)
			}
			assert.Greater(t, len(inspect("--method", "tools/list", "--strict")["tools"].([]any)), 10)
			res := inspect("--method", "tools/call", "--tool-name", "shell_execute", "--tool-arg", `commands=["echo","hi"]`)
			assert.Equal(t, "hi\n", res["structuredContent"].(args)["stdout"])
			assert.Contains(t, inspect("--method", "resources/list"), "resources")
		})
	}
}

// The printed configuration of a client starts a server in that client.
func TestTheInspectorTakesThePrintedConfiguration(t *testing.T) {
	n, w := newNPM(t), newWorld(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "note"), []byte("from the host\n"), 0o600))
	print := w.command("mcp", "config", "--client", "claude", "--", "--mount", "note:/note")
	print.Dir = dir
	config, err := print.Output()
	require.NoError(t, err)
	file := filepath.Join(dir, "config.json")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	res := n.inspect(w, "--config", file, "--server", "wisbox", "-e", "WISBOX_CACHE="+w.cache,
		"--method", "tools/call", "--tool-name", "read_file", "--tool-arg", "file_path=note")
	assert.Equal(t, "from the host\n", res["structuredContent"].(args)["content"])
}

func TestTheTypeScriptClient(t *testing.T) {
	n, w := newNPM(t), newWorld(t).needsPodman()
	// 64 programs run at once: the default limit of processes has room for 40.
	n.runOurs(w, "client.mjs", w.bin, "mcp", "--pids", "1024")
}

// The client of the tasks extension, which disconnects and comes back.
func TestTheTypeScriptClientOfTasks(t *testing.T) {
	n, w := newNPM(t), newWorld(t).needsPodman()
	s := w.serve("127.0.0.1:0", "--eval-timeout", "10m") // on a busy machine the default may end code before the client checks it
	n.runOurs(w, "tasks.mjs", s.url(), s.token)
}

// runOurs runs a script of testdata beside the packages.
func (n *npm) runOurs(w *world, name string, args ...string) {
	n.t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(n.t, err)
	beside := filepath.Join(n.dir, name)
	require.NoError(n.t, os.WriteFile(beside, script, 0o600))
	out, errs, err := n.run(w, beside, args...)
	assert.NoError(n.t, err, "%s\n%s", out, errs)
}

// TestTheConformanceSuite runs the suite against the server, with the suite's fixtures beside its own tools: all active
// scenarios, which are those of the revisions with connections, and the requirements of the newest revision. It also
// runs and scores the scenarios of extensions, which the suite doesn't score.
func TestTheConformanceSuite(t *testing.T) {
	n := newNPM(t)
	url := conformingServer(t)
	for name, which := range map[string][]string{
		"active":     {"--suite", "active"},
		"2026-07-28": {"--requirements", "2026-07-28"},
	} {
		t.Run(name, func(t *testing.T) {
			n.t = t
			out, errs, err := n.run(newWorld(t), conformanceScript, append([]string{"server", "--url", url}, which...)...)
			assert.NoError(t, err, "%s\n%s", out, errs)
			said := total.Find(out)
			t.Logf("%s", said)
			assert.Contains(t, string(said), ", 0 failed", "%s", out)
			for _, one := range taskScenarios {
				if name == "2026-07-28" {
					assert.Regexp(t, `(?m)^✓ tasks-`+one+`: [1-9]`, string(out))
				}
			}
		})
	}
}

// taskScenarios are all scenarios except status-notifications, a stub that checks nothing.
var taskScenarios = []string{
	"lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers",
	"dispatch-and-envelope", "required-task-error", "mrtr-composition",
}

var total = regexp.MustCompile(`(?m)^Total: .*$`)

// conformingServer serves the tools and the fixtures, behind a proxy that adds the token.
func conformingServer(t *testing.T) (url string) {
	t.Helper()
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: filepath.Join(t.TempDir(), "state")})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, m.Close()) })
	server := mcpserver.New(wisbox.ToolSet(), &mcpserver.Options{
		Instructions: wisbox.Guidance(""), Extend: fixtures,
		Open: func(ctx context.Context) (mcpserver.Session, error) { return m.Open(ctx, nil) },
	})
	proxy := httptest.NewUnstartedServer(nil)
	opts := &mcpserver.HTTPOptions{Options: httpguard.Options{Tokens: []string{httpguard.NewToken()}, Origins: []string{"http://" + proxy.Listener.Addr().String()}}}
	handler, err := server.Handler(opts)
	require.NoError(t, err)
	behind := httptest.NewServer(handler)
	proxy.Config.Handler = withToken(t, behind.URL, opts.Tokens[0])
	proxy.Start()
	t.Cleanup(func() {
		assert.NoError(t, handler.Close())
		proxy.Close()
		behind.Close()
	})
	return proxy.URL + "/mcp"
}

// withToken adds the token, for clients that can't, and changes nothing else. It first reads the whole request: a
// transport that still reads the body when the answer arrives may drop the answer.
func withToken(t *testing.T, to, token string) http.Handler {
	target, err := url.Parse(to)
	require.NoError(t, err)
	return &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		body, _ := io.ReadAll(r.In.Body)
		r.Out.Body = io.NopCloser(bytes.NewReader(body))
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+token)
	}}
}
