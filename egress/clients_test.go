package egress

import (
	"cmp"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/hosttest"
)

const clientsKey = "WISBOX_EGRESS_CLIENTS" // the folder of the clients from npm; by default they are installed

// clientsOfNpm are the clients of npm's registry; update their versions with the table in docs/network.md.
var clientsOfNpm = []string{
	"node@22.23.3", "node24@npm:node@24.21.0", "node26@npm:node@26.10.0", "bun@1.4.5", "deno@2.9.6", "npm@11.21.2", "pnpm@12.21.0", "yarn@1.22.22", "@yarnpkg/cli-dist@4.18.1",
}

const (
	fetches  = `const t = async () => console.log(await (await fetch(process.argv[1])).text()); t()`
	httpGets = `require(process.argv[1].split(':')[0]).get(process.argv[1], r => r.pipe(process.stdout)).on('error', e => { console.log(e); process.exit(1) })`
	sockets  = `const w = new WebSocket(process.argv[1])
w.onopen = () => w.send('hello'); w.onmessage = e => { console.log(e.data); w.close() }; w.onerror = e => { console.log(e); process.exit(1) }`
	denoGets = `console.log(await (await fetch(Deno.args[0])).text())`
	urllib   = `import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())`
	requests = `import sys, requests; print(requests.get(sys.argv[1]).text)`
	java     = "Java 17's HttpClient"
	javaGets = `import java.net.*; import java.net.http.*;
class Get { public static void main(String[] a) throws Exception {
	System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(), HttpResponse.BodyHandlers.ofString()).body()); } }`
)

// client is a real program that gets a URL.
type client struct {
	name string
	argv []string
	path string   // of its URL, by default /x
	env  []string // besides the variables that wisbox sets

	trust string // the variable by which it trusts the proxy; "" if there is none
}

func clientsIn(dir string) []client {
	in := func(path string) string {
		found, _ := filepath.Glob(filepath.Join(dir, "node_modules", path))
		return append(found, path)[0]
	}
	nodes := []string{in("node/bin/node"), in("node24/bin/node"), in("node26/bin/node")}
	self, _ := os.Executable()
	curl := append(curlOfTheImage(dir), "-sSN")
	all := []client{
		{name: "curl 7.88", argv: []string{"curl", "-sS", "{url}"}, trust: "CURL_CA_BUNDLE"},
		{name: "`curl -p`", argv: []string{"curl", "-sSp", "{url}"}, trust: "CURL_CA_BUNDLE"},
		{name: "curl 8.14", argv: append(slices.Clone(curl), "{url}"), trust: "CURL_CA_BUNDLE"},
		{name: "WebSocket of curl 8.14", argv: append(slices.Clone(curl), "{ws}"), path: "/greeting", trust: "CURL_CA_BUNDLE"},
		{name: "wget 1.21", argv: []string{"wget", "-qO-", "{url}"}, trust: "SYSTEM_WGETRC"},
		{name: "urllib of Python 3", argv: []string{"/usr/bin/python3", "-c", urllib, "{url}"}, trust: "SSL_CERT_FILE"},
		{name: "requests 2.28", argv: []string{"/usr/bin/python3", "-c", requests, "{url}"}, trust: "REQUESTS_CA_BUNDLE"},
		{name: "Go's `net/http`", argv: []string{self, "{url}"}, trust: "SSL_CERT_FILE"},
		{name: java, argv: []string{"java", "-cp", dir, "Get", "{url}"}},
		{name: "git 2.39", argv: []string{"git", "ls-remote", "{url}"}, path: "/repo", trust: "GIT_SSL_CAINFO"},
	}
	for i, version := range []string{"22", "24", "26"} {
		all = append(all,
			client{name: "fetch of Node.js " + version, argv: []string{nodes[i], "-e", fetches, "{url}"}, trust: "NODE_EXTRA_CA_CERTS"},
			client{name: "`http.get` of Node.js " + version, argv: []string{nodes[i], "-e", httpGets, "{url}"}, trust: "NODE_EXTRA_CA_CERTS"},
			client{name: "WebSocket of Node.js " + version, argv: []string{nodes[i], "-e", sockets, "{ws}"}, trust: "NODE_EXTRA_CA_CERTS"},
		)
	}
	return append(all,
		client{name: "fetch of bun 1.4", argv: []string{in("bun/bin/bun.exe"), "-e", fetches, "{url}"}, trust: "NODE_EXTRA_CA_CERTS"},
		client{name: "fetch of deno 2.9", argv: []string{in("@deno/*/deno"), "eval", denoGets, "{url}"}, trust: "DENO_CERT"},
		client{name: "npm 11", argv: []string{nodes[0], in("npm/bin/npm-cli.js"), "view", "--registry={url}", "pkg", "version"}, path: "/", trust: "npm_config_cafile"},
		client{name: "pnpm 12", argv: []string{nodes[0], in("pnpm/bin/pnpm.*js"), "view", "--registry={url}", "pkg", "version"}, path: "/", trust: "NODE_EXTRA_CA_CERTS"},
		client{name: "yarn 1.22", argv: []string{nodes[0], in("yarn/bin/yarn.js"), "info", "--registry", "{url}", "pkg", "version"}, path: "/", trust: "npm_config_cafile"},
		client{
			name: "yarn 4", argv: []string{nodes[0], in("@yarnpkg/cli-dist/bin/yarn.js"), "npm", "info", "pkg", "--fields", "version"}, path: "/",
			env:   []string{"YARN_NPM_REGISTRY_SERVER={url}", "YARN_UNSAFE_HTTP_WHITELIST=*", "YARN_ENABLE_TELEMETRY=0", "YARN_ENABLE_PROGRESS_BARS=0", "YARN_HTTP_RETRY=0"},
			trust: "NODE_EXTRA_CA_CERTS",
		},
	)
}

// curlOfTheImage returns the command line of curl in the sessions' default image, which knows WebSockets as Debian 12's doesn't.
func curlOfTheImage(dir string) []string {
	linkers, _ := filepath.Glob(filepath.Join(dir, "image/usr/lib/*/ld-linux-*"))
	linker := append(linkers, "ld-linux")[0]
	return []string{linker, "--library-path", filepath.Dir(linker), filepath.Join(dir, "image/usr/bin/curl")}
}

// goClient is the client of Go's library.
func goClient() {
	resp, err := http.Get(os.Args[1])
	fatal(err)
	_, err = io.Copy(os.Stdout, resp.Body)
	fatal(err)
	os.Exit(0)
}

// matrix is a sandbox in which real clients run.
type matrix struct {
	w       *world
	inner   *namespace
	dir     string        // of the clients
	env     []string      // of every client
	vars    []string      // those that wisbox sets
	entered *atomic.Int64 // connections to the proxy
}

// TestRealClientsByTheThreeWays: which way a client takes is its own matter. Each reaches the allowed host by it, and without
// the variables by the third, and the sandbox's own ports. The page's table says which.
func TestRealClientsByTheThreeWays(t *testing.T) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it installs programs from npm's registry; make nightly runs it")
	}
	if os.Getenv(roleKey) != "host" {
		installClients(t)
		asHost(t)
		return
	}
	page, err := os.ReadFile("../docs/network.md")
	require.NoError(t, err)
	m := newMatrix(t)
	for _, c := range clientsIn(m.dir) {
		t.Run(c.name, func(t *testing.T) {
			row := []string{c.name}
			for _, scheme := range []string{"http", "https"} {
				row = append(row, m.wayOf(t, c, scheme, m.vars))
				assert.Equal(t, "transparent", m.wayOf(t, c, scheme, m.without("PROXY")))
			}
			for _, hosts := range [][]string{{"127.0.0.1", "0.0.0.0", "localhost"}, {"127.0.0.2"}, {"[::1]", "[::]"}, {"app.localhost"}} {
				row = append(row, m.wayToOwn(t, c, hosts))
			}
			m.env = slices.DeleteFunc(m.env, func(v string) bool { return c.name == java && strings.HasPrefix(v, "JDK_") })
			m.trusts(t, c)
			row = append(row, cmp.Or(c.trust, "not at all"))
			line := "| " + strings.Join(row, " | ") + " |\n"
			assert.True(t, strings.Contains(string(page), line), "the page lacks %s", line)
		})
	}
}

func newMatrix(t *testing.T) *matrix {
	m := &matrix{w: newWorld(t), inner: newNamespace(t), dir: os.Getenv(clientsKey), entered: &atomic.Int64{}}
	connectInternet(t, m.w)
	roots := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.w.ca.Raw}), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(m.dir, "Get.java"), []byte(javaGets), 0o644))
	m.w.name("example.com", address)
	b := &box{world: m.w}
	var err error
	b.Proxy, err = New(&Options{Policy: mustParse(t, "example.com"), Resolver: m.w, Roots: m.w.roots, Journal: m.w.journal})
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	places, err := b.Start(t.Context(), m.inner)
	require.NoError(t, err)
	require.NoError(t, places.Problem)

	m.env = []string{"PATH=" + os.Getenv("PATH"), "NODE_NO_WARNINGS=1", "GIT_TERMINAL_PROMPT=0", "NO_UPDATE_NOTIFIER=1", "npm_config_fetch_retries=0", roleKey + "=client"}
	for name, value := range Variables("http://"+m.counted(t, places.Proxy), roots, &policy.Policy{}) {
		m.vars = append(m.vars, name+"="+value)
	}
	for _, f := range SettingsFiles(roots) {
		path := filepath.Join(t.TempDir(), f.Name)
		require.NoError(t, os.WriteFile(path, []byte(f.Text), 0o644))
		m.vars = append(m.vars, f.Variable+"="+path)
	}
	m.trustOfJava(t, roots)
	l, err := m.inner.Listen(t.Context(), "tcp", "[::]:8000")
	require.NoError(t, err)
	own := &http.Server{Handler: http.HandlerFunc(serveClients)}
	go func() { _ = own.Serve(l) }()
	t.Cleanup(func() { _ = own.Close() })
	return m
}

// trustOfJava makes a store of certificates for Java, which has no variable for them.
func (m *matrix) trustOfJava(t *testing.T, roots string) {
	store := filepath.Join(t.TempDir(), "trust")
	run(t, "keytool", "-importcert", "-noprompt", "-alias", "wisbox", "-file", roots, "-keystore", store, "-storepass", "changeit")
	m.env = append(m.env, "JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStore="+store+" -Djavax.net.ssl.trustStorePassword=changeit")
	run(t, "javac", "-d", m.dir, filepath.Join(m.dir, "Get.java"))
}

// counted returns an address of the sandbox that leads to the proxy and counts connections.
func (m *matrix) counted(t *testing.T, proxy string) string {
	l, err := m.inner.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	to := netip.MustParseAddrPort(strings.TrimPrefix(proxy, "http://"))
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			m.entered.Add(1)
			go func() {
				defer c.Close()
				up, err := m.inner.DialAddr(t.Context(), to)
				if err == nil {
					join(c, up)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// without returns wisbox's variables without those whose names contain a word.
func (m *matrix) without(word string) []string {
	return slices.DeleteFunc(slices.Clone(m.vars), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.Contains(strings.ToUpper(name), word)
	})
}

// wayOf returns the way by which a client reached the allowed host.
func (m *matrix) wayOf(t *testing.T, c client, scheme string, vars []string) string {
	event := map[string]string{"http": "request", "https": "open"}[scheme] // plain connections to the server are kept
	before, opened := len(m.w.journal.all(event)), len(m.w.journal.all("open"))
	out, err := m.run(t, c, scheme+"://example.com", vars)
	require.NoError(t, err, out)
	eventually(t, func() bool { return len(m.w.journal.all(event)) > before }, "it is in the log")
	took := map[string]bool{}
	for _, l := range slices.Concat(m.w.journal.all(event)[before:], m.w.journal.all("open")[opened:]) {
		took[l.Kind] = true
	}
	for _, way := range []struct{ kind, name string }{{"transparent", "transparent"}, {"connect", "`CONNECT`"}, {"http", "absolute form"}} {
		if took[way.kind] { // a request in a tunnel is http, too
			return way.name
		}
	}
	return ""
}

// wayToOwn returns how a client reached a port of the sandbox itself, by each of its names.
func (m *matrix) wayToOwn(t *testing.T, c client, hosts []string) string {
	took := map[string]bool{}
	for _, host := range hosts {
		before := m.entered.Load()
		out, err := m.run(t, c, "http://"+host+":8000", m.vars)
		require.NoError(t, err, "%s: %s", host, out)
		took[map[bool]string{true: "by the proxy", false: "directly"}[m.entered.Load() > before]] = true
	}
	if len(took) > 1 {
		return "both"
	}
	for way := range took {
		return way
	}
	return ""
}

// trusts checks that a client trusts the file of certificates by its variable alone, and nobody without any.
func (m *matrix) trusts(t *testing.T, c client) {
	var plain []string
	for _, v := range m.vars {
		if name, _, _ := strings.Cut(v, "="); strings.Contains(v, "http://") || name == "NODE_USE_ENV_PROXY" || name == c.trust {
			plain = append(plain, v)
		}
	}
	out, err := m.run(t, c, "https://example.com", plain)
	if c.trust == "" {
		assert.Error(t, err, "it trusts everybody: %s", out)
		return
	}
	assert.NoError(t, err, "by %s alone: %s", c.trust, out)
	out, err = m.run(t, c, "https://example.com", slices.DeleteFunc(plain, func(v string) bool { return strings.HasPrefix(v, c.trust+"=") }))
	assert.Error(t, err, "it trusts everybody: %s", out)
}

// answered matches what clients print of the servers' answers.
var answered = regexp.MustCompile(`:8000 at |example\.com at |refs/heads/main|1\.0\.0`)

// run runs a client in the sandbox, and fails if it printed no answer. Each run has a home of its own, as npm answers from its cache
// where it reaches no server.
func (m *matrix) run(t *testing.T, c client, base string, vars []string) (string, error) {
	argv, env := []string{}, slices.Concat(m.env, vars)
	url := base + cmp.Or(c.path, "/x")
	at := strings.NewReplacer("{url}", url, "{ws}", "ws"+strings.TrimPrefix(url, "http"))
	for _, arg := range c.argv {
		argv = append(argv, at.Replace(arg))
	}
	for _, v := range c.env {
		env = append(env, at.Replace(v))
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = slices.Concat(env, []string{"HOME=" + t.TempDir()}), t.TempDir(), time.Second
	for name, text := range map[string]string{"package.json": "{}", "yarn.lock": ""} { // yarn 4 wants a project
		require.NoError(t, os.WriteFile(filepath.Join(cmd.Dir, name), []byte(text), 0o644))
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if _, err := inside(m.inner, func() (struct{}, error) { return struct{}{}, cmd.Start() }); err != nil {
		return "", err
	}
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	err := cmd.Wait()
	if err == nil && !answered.MatchString(out.String()) { // yarn 1 ends with 0
		err = errors.New("no answer")
	}
	return out.String(), err
}

func installClients(t *testing.T) {
	for _, tool := range []string{"npm", "java", "javac", "keytool", "wget", "git", "/usr/bin/python3"} {
		if _, err := exec.LookPath(tool); err != nil {
			hosttest.Lacks(t, "%s is missing", tool)
		}
	}
	if err := exec.Command("/usr/bin/python3", "-c", "import requests").Run(); err != nil {
		hosttest.Lacks(t, "requests of Python is missing")
	}
	if os.Getenv(clientsKey) != "" {
		return
	}
	dir := t.TempDir()
	run(t, "bash", "-ec", `mkdir "$1/image"; made=$(podman create --network none localhost/wisbox true); trap 'podman rm "$made"' EXIT
podman export "$made" | tar -x -C "$1/image" --wildcards usr/bin/curl 'usr/lib/*-linux-gnu'`, "bash", dir)
	run(t, "npm", append([]string{"install", "--silent", "--no-audit", "--no-fund", "--prefix", dir}, clientsOfNpm...)...)
	t.Setenv(clientsKey, dir)
}
