package mcp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/mcpserver"
)

// npm is a directory of installed packages, pinned by testdata/package.json.
type npm struct {
	t   *testing.T
	dir string
}

// newNPM installs the packages into the user's cache, once. Where npm or its
// registry is out of reach the test skips, or fails with WISBOX_REQUIRE_NPM.
func newNPM(t *testing.T) *npm {
	t.Helper()
	manifest, err := os.ReadFile("testdata/package.json")
	require.NoError(t, err)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	sum := sha256.Sum256(manifest)
	n := &npm{t, filepath.Join(cache, "wisbox-test", "npm-"+hex.EncodeToString(sum[:6]))}
	if out, err := n.install(manifest); err != nil {
		if os.Getenv("WISBOX_REQUIRE_NPM") != "" {
			t.Fatalf("the packages are required (WISBOX_REQUIRE_NPM): %v\n%s", err, out)
		}
		t.Skipf("the packages can't be installed: %v\n%s", err, out)
	}
	return n
}

func (n *npm) install(manifest []byte) ([]byte, error) {
	require.NoError(n.t, os.MkdirAll(n.dir, 0o700))
	lock := flock.New(n.dir + ".lock")
	require.NoError(n.t, lock.Lock())
	defer lock.Close()
	done := filepath.Join(n.dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return nil, nil
	}
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, "package.json"), manifest, 0o600))
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = n.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return out, err
	}
	if out, err := exec.CommandContext(ctx, n.node(), "--version").CombinedOutput(); err != nil {
		return out, err
	}
	return nil, os.WriteFile(done, nil, 0o600)
}

func (n *npm) node() string { return filepath.Join(n.dir, "node_modules/node/bin/node") }

// run runs a script of a package, or one of ours that was put beside them.
func (n *npm) run(w *world, script string, args ...string) (stdout []byte, stderr string, err error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*time.Minute)
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
				return n.inspect(w, append(target[:len(target):len(target)], args...)...)
			}
			assert.Greater(t, len(inspect("--method", "tools/list", "--strict")["tools"].([]any)), 10)
			res := inspect("--method", "tools/call", "--tool-name", "shell_execute", "--tool-arg", `commands=["echo","hi"]`)
			assert.Equal(t, "hi\n", res["structuredContent"].(args)["stdout"])
			assert.Contains(t, inspect("--method", "resources/list"), "resources")
		})
	}
}

// What is printed for a client's configuration starts a server in a client.
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
	script, err := os.ReadFile("testdata/client.mjs")
	require.NoError(t, err)
	beside := filepath.Join(n.dir, "client.mjs")
	require.NoError(t, os.WriteFile(beside, script, 0o600))
	out, errs, err := n.run(w, beside, w.bin, "mcp")
	assert.NoError(t, err, "%s\n%s", out, errs)
}

// TestTheConformanceSuite holds the server, with the suite's fixtures beside its
// own tools, against what the suite asks of one: all active scenarios, which are
// those of the revisions with connections, and what the newest revision requires.
// Scenarios of extensions run too and are not scored.
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
			t.Logf("%s", total.Find(out))
		})
	}
}

var total = regexp.MustCompile(`(?m)^Total: .*$`)

// conformingServer serves the tools and the fixtures, behind a proxy that has the
// token.
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
	opts := &mcpserver.HTTPOptions{Tokens: []string{mcpserver.NewToken()}, Origins: []string{"http://" + proxy.Listener.Addr().String()}}
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

// withToken adds the token, for clients that can't, and changes nothing else. It
// reads a request whole first: a transport that still reads the body when the
// answer comes may take the body's end for an error and drop the answer.
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
