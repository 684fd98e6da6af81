package egress

import (
	"encoding/pem"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

const clientsKey = "WISBOX_EGRESS_CLIENTS" // the folder of the clients from npm; by default they are installed

// clientsOfNpm are the clients of npm's registry; update their versions with the table in docs/network.md.
var clientsOfNpm = []string{"node@22.23.3", "node24@npm:node@24.21.0", "node26@npm:node@26.10.0", "bun@1.4.5", "deno@2.9.6", "npm@11.21.2", "pnpm@12.21.0", "yarn@1.22.22"}

const (
	fetches  = `const t = async () => console.log(await (await fetch(process.argv[1])).text()); t()`
	httpGets = `require(process.argv[1].split(':')[0]).get(process.argv[1], r => r.pipe(process.stdout))`
	denoGets = `console.log(await (await fetch(Deno.args[0])).text())`
	urllib   = `import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())`
	javaGets = `import java.net.*; import java.net.http.*;
class Get { public static void main(String[] a) throws Exception {
	System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }`
)

// client is a real program, and the ways that it takes if the proxy's variables are set.
type client struct {
	name        string
	argv        []string
	path        string // of its URL, by default /x
	http, https string
}

func clientsIn(dir, roots string) []client {
	in := func(path string) string {
		found, _ := filepath.Glob(filepath.Join(dir, "node_modules", path))
		return append(found, path)[0]
	}
	node := in("node/bin/node")
	self, _ := os.Executable()
	return []client{
		{name: "curl", argv: []string{"curl", "-sS", "{url}"}, http: "http", https: "connect"},
		{name: "curl -p", argv: []string{"curl", "-sSp", "{url}"}, http: "connect", https: "connect"},
		{name: "wget", argv: []string{"wget", "-qO-", "--ca-certificate=" + roots, "{url}"}, http: "http", https: "connect"},
		{name: "urllib", argv: []string{"python3", "-c", urllib, "{url}"}, http: "http", https: "connect"},
		{name: "fetch of Node.js 22", argv: []string{node, "-e", fetches, "{url}"}, http: "connect", https: "connect"},
		{name: "fetch of Node.js 24", argv: []string{in("node24/bin/node"), "-e", fetches, "{url}"}, http: "connect", https: "connect"},
		{name: "fetch of Node.js 26", argv: []string{in("node26/bin/node"), "-e", fetches, "{url}"}, http: "http", https: "connect"},
		{name: "http.get of Node.js 22", argv: []string{node, "-e", httpGets, "{url}"}, http: "http", https: "connect"},
		{name: "http.get of Node.js 26", argv: []string{in("node26/bin/node"), "-e", httpGets, "{url}"}, http: "http", https: "connect"},
		{name: "bun", argv: []string{in("bun/bin/bun.exe"), "-e", fetches, "{url}"}, http: "http", https: "connect"},
		{name: "deno", argv: []string{in("@deno/*/deno"), "eval", denoGets, "{url}"}, http: "http", https: "connect"},
		{name: "Go", argv: []string{self, "{url}"}, http: "http", https: "connect"},
		{name: "Java 17", argv: []string{"java", "-Djavax.net.ssl.trustStore=" + filepath.Join(dir, "trust"), "-Djavax.net.ssl.trustStorePassword=changeit", filepath.Join(dir, "Get.java"), "{url}"}, http: "transparent", https: "transparent"},
		{name: "git", argv: []string{"git", "ls-remote", "{url}"}, path: "/repo", http: "http", https: "connect"},
		{name: "npm", argv: []string{node, in("npm/bin/npm-cli.js"), "view", "--registry={url}", "pkg", "version"}, path: "/", http: "http", https: "connect"},
		{name: "pnpm", argv: []string{node, in("pnpm/bin/pnpm.*js"), "view", "--registry={url}", "pkg", "version"}, path: "/", http: "http", https: "connect"},
		{name: "yarn", argv: []string{node, in("yarn/bin/yarn.js"), "info", "--registry", "{url}", "pkg", "version"}, path: "/", http: "http", https: "connect"},
	}
}

// goClient is the client of Go's library.
func goClient() {
	resp, err := http.Get(os.Args[1])
	fatal(err)
	_, err = io.Copy(os.Stdout, resp.Body)
	fatal(err)
	os.Exit(0)
}

// TestRealClientsByTheThreeWays: which way a client takes is its own matter, and each reaches the allowed host.
func TestRealClientsByTheThreeWays(t *testing.T) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it installs programs from npm's registry; make nightly runs it")
	}
	if os.Getenv(roleKey) != "host" {
		installClients(t)
		asHost(t)
		return
	}
	dir := os.Getenv(clientsKey)
	w := newWorld(t)
	connectInternet(t, w)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.ca.Raw}), 0o644))
	_ = os.Remove(filepath.Join(dir, "trust"))
	run(t, "keytool", "-importcert", "-noprompt", "-alias", "wisbox", "-file", roots, "-keystore", filepath.Join(dir, "trust"), "-storepass", "changeit")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Get.java"), []byte(javaGets), 0o644))
	w.name("example.com", address)
	b := &box{world: w}
	var err error
	b.Proxy, err = New(&Options{Policy: mustParse(t, "example.com"), Resolver: w, Roots: w.roots, Journal: w.journal})
	require.NoError(t, err)
	defer b.Close()
	inner := newNamespace(t)
	places, err := b.Start(t.Context(), inner)
	require.NoError(t, err)
	require.NoError(t, places.Problem)

	home := t.TempDir()
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SSL_CERT_FILE=" + roots, "NODE_EXTRA_CA_CERTS=" + roots, "CURL_CA_BUNDLE=" + roots, "GIT_SSL_CAINFO=" + roots, "DENO_CERT=" + roots,
		"NODE_NO_WARNINGS=1", "GIT_TERMINAL_PROMPT=0", "NO_UPDATE_NOTIFIER=1", "COREPACK_ENABLE_STRICT=0",
	}
	proxied := append(slices.Clone(env), "NODE_USE_ENV_PROXY=1", "http_proxy="+places.Proxy, "https_proxy="+places.Proxy, "HTTP_PROXY="+places.Proxy, "HTTPS_PROXY="+places.Proxy)
	for _, c := range clientsIn(dir, roots) {
		for _, scheme := range []string{"http", "https"} {
			way := map[string]string{"http": c.http, "https": c.https}[scheme]
			for want, vars := range map[string][]string{way: proxied, "transparent": env} {
				t.Run(c.name+"/"+scheme+"/"+want, func(t *testing.T) {
					event := map[string]string{"http": "request", "https": "open"}[scheme] // plain connections to the server are kept
					before, opened := len(w.journal.all(event)), len(w.journal.all("open"))
					out := inner.client(t, c, scheme, vars)
					eventually(t, func() bool { return len(w.journal.all(event)) > before }, "it is in the log")
					assert.Regexp(t, `example\.com at |refs/heads/main|1\.0\.0`, out)
					took := map[string]bool{}
					for _, l := range slices.Concat(w.journal.all(event)[before:], w.journal.all("open")[opened:]) {
						took[l.Kind] = true
					}
					if took["connect"] {
						delete(took, "http") // a request in the tunnel
					}
					assert.Equal(t, map[string]bool{want: true}, took, out)
				})
			}
		}
	}
}

// client runs a client in the sandbox.
func (n *namespace) client(t *testing.T, c client, scheme string, env []string) string {
	if c.path == "" {
		c.path = "/x"
	}
	var argv []string
	for _, arg := range c.argv {
		argv = append(argv, strings.ReplaceAll(arg, "{url}", scheme+"://example.com"+c.path))
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = append(slices.Clip(env), roleKey+"=client"), t.TempDir(), time.Second
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	_, err := inside(n, func() (struct{}, error) { return struct{}{}, cmd.Start() })
	require.NoError(t, err)
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err = cmd.Wait()
	assert.NoError(t, err, "%s", out.String())
	return out.String()
}

func installClients(t *testing.T) {
	for _, tool := range []string{"npm", "java", "keytool", "wget", "git", "python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			hosttest.Lacks(t, "%s is missing", tool)
		}
	}
	if os.Getenv(clientsKey) != "" {
		return
	}
	dir := t.TempDir()
	run(t, "npm", append([]string{"install", "--silent", "--no-audit", "--no-fund", "--prefix", dir}, clientsOfNpm...)...)
	t.Setenv(clientsKey, dir)
}
