package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/egress"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// A task is a command that installs something, with its rule in docs/network.md.
type task struct {
	name, script, want string

	rule string // must match all its connections; "" for several
	once bool   // run only with the proxy, because it takes long
}

// The tasks are those of docs/network.md's table. If a test's registry lacks a feature of the real one, such as
// signatures, the task notes it.
var tasks = []task{
	{"pip", "pip install -q wisbox-hello && wisbox-hello && python3 -c 'import wisbox_hello as h; print(h.__file__)'",
		"hello from pypi\n/workspace/.local/lib/python3.12/site-packages/wisbox_hello.py\n", "python", false},
	{"pip in a venv", "python3 -m venv v && v/bin/pip install -q wisbox-hello && v/bin/wisbox-hello", "hello from pypi\n", "python", true},
	{"pip --target", "pip install -q --target lib wisbox-hello && lib/bin/wisbox-hello 2>&1 | tail -n 1; ls lib/*.py", "ModuleNotFoundError: No module named 'wisbox_hello'\nlib/wisbox_hello.py\n", "python", false},
	{"npm install", "npm install --silent wisbox-hello && node -p 'require(`wisbox-hello`)' && rm -rf node_modules && npm ci >/dev/null && node -p 'require(`wisbox-hello`)' && " +
		"npm install --silent -g --prefix /workspace/.local wisbox-hello && ls /workspace/.local/lib/node_modules", "hello from npm\nhello from npm\nwisbox-hello\n", "node", false},
	{"node", `node -e '
const get = url => new Promise((ok, bad) => require("https").get(url, r => { r.resume(); ok(r.statusCode) }).on("error", bad));
fetch("https://registry.npmjs.org/wisbox-hello").then(r => r.json()).then(async j => console.log(j.name, await get("https://registry.npmjs.org/wisbox-hello")))'`,
		"wisbox-hello 200\n", "node", false},
	{"git clone", "git clone -q https://github.com/me/hello.git && cat hello/greeting", "hello from git\n", "git", false},
	{"curl", "curl -sSf https://pypi.org/simple/wisbox-hello/ | grep -c sha256; curl -sSf http://deb.debian.org/debian/dists/trixie/Release | grep -c Suite", "1\n1\n", "", false},
	{"apt-get download", "apt-get -qq -o Acquire::AllowInsecureRepositories=true update 2>/dev/null && apt-get -qq -o APT::Get::AllowUnauthenticated=true download wisbox-hello >/dev/null 2>&1 && ls *.deb && apt-cache policy bash | grep -c 'Installed: [0-9]'",
		"wisbox-hello_1.0_all.deb\n1\n", "debian", false},
	{"go mod download", "export GOROOT=/workspace/tools GOPATH=$PWD/go GONOSUMDB=example.com GOTOOLCHAIN=local && go mod init -q example.org/x 2>/dev/null; go mod download example.com/hello@v1.0.0 && ls $(go env GOMODCACHE)/example.com",
		"hello@v1.0.0\n", "go", false},
	{"cargo fetch", "mkdir src && touch src/lib.rs && printf '[package]\\nname = \"x\"\\nversion = \"1.0.0\"\\n[dependencies]\\nwisbox-hello = \"1\"\\n' >Cargo.toml && cargo fetch -q && find $HOME/.cargo -name 'wisbox-hello-1.0.0.crate' | wc -l",
		"1\n", "rust", false},
	{"python", "python3 -c '" + strings.ReplaceAll(fetch, "sys.argv[1]", `"https://pypi.org/simple/wisbox-hello/"`) + "' | head -c 8", "<a href=", "python", false},
}

// connections returns the connections of a session's programs in its log, with their requests: several connections of a
// program may share one to the server. A request is logged after its program has the answer, so connections waits for
// all lines.
func (w *world) connections(session string) (made []egress.Line) {
	w.t.Helper()
	require.Eventually(w.t, func() bool {
		var requests int64
		made = nil
		for line := range strings.Lines(w.do("log", session, "--network", "--json")) {
			var l egress.Line
			require.NoError(w.t, json.Unmarshal([]byte(line), &l), "%s", line)
			if l.Event == "open" || l.Event == "request" {
				made = append(made, l)
			}
			if l.Event == "request" {
				requests += 1 + l.Count
			}
		}
		return requests >= w.seen().plain
	}, time.Minute, 10*time.Millisecond, "requests without a line")
	return made
}

// unproxied unsets all proxy variables.
const unproxied = "unset HTTP_PROXY HTTPS_PROXY ALL_PROXY http_proxy https_proxy all_proxy NODE_USE_ENV_PROXY\n"

// hostTools copies programs from this machine that the default image lacks.
func hostTools(t *testing.T) (mount string, lacks map[string]bool) {
	t.Helper()
	dir, lacks := t.TempDir(), map[string]bool{}
	link := func(to, from string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755))
		require.NoError(t, exec.Command("cp", "-aL", from, filepath.Join(dir, to)).Run())
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	for _, name := range []string{"bin/go", "VERSION", "go.env"} {
		link(name, filepath.Join(strings.TrimSpace(string(goroot)), name))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "src"), 0o755))
	packages := hosttest.NodePackages(t, "mcp/testdata/package.json")
	link("bin/node", filepath.Join(packages, "node/bin/node"))
	link("lib/npm", filepath.Join(packages, "npm"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin/npm"), []byte("#!/bin/sh\nexec node /workspace/tools/lib/npm/bin/npm-cli.js \"$@\"\n"), 0o755))
	cargo, err := exec.Command("rustup", "which", "cargo").Output()
	if err != nil {
		t.Logf("without cargo, which isn't on this machine: %v", err)
		return dir, map[string]bool{"cargo fetch": true}
	}
	link("bin/cargo", strings.TrimSpace(string(cargo)))
	link("bin/rustc", recordedCompiler(t))
	return dir, lacks
}

// recordedCompiler writes a script that answers the questions of cargo fetch to its compiler, which is too large to
// copy.
func recordedCompiler(t *testing.T) string {
	t.Helper()
	version, err := exec.Command("rustc", "-vV").Output()
	require.NoError(t, err)
	target, err := exec.Command("rustc", strings.Fields("- --crate-name ___ --print=file-names --crate-type bin --crate-type rlib --crate-type dylib --crate-type cdylib "+
		"--crate-type staticlib --crate-type proc-macro --print=sysroot --print=split-debuginfo --print=crate-name --print=cfg")...).Output()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "rustc")
	script := fmt.Sprintf("#!/bin/sh\n[ $1 = -vV ] && exec cat <<'.'\n%s.\nexec cat <<'.'\n%s.\n", version, target)
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755))
	return path
}

// makeRepository creates a repository that the Internet serves.
func (w *world) makeRepository() {
	w.t.Helper()
	out, err := exec.Command("sh", "-ec", `
git init -q --bare "$1/git/me/hello.git" && git -C "$1/git/me/hello.git" config http.receivepack true
git init -q -b main "$1/clone" && cd "$1/clone" && echo hello from git >greeting && git add greeting
git -c user.name=me -c user.email=me@example.com commit -q -m hello && git push -q "$1/git/me/hello.git" main
git -C "$1/git/me/hello.git" symbolic-ref HEAD refs/heads/main`, "sh", w.dir).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}

var allPresets = []string{"--allow", "python", "--allow", "node", "--allow", "debian", "--allow", "git", "--allow", "go", "--allow", "rust"}

// TestEgressServesRealTools, with a session's proxy variables and without them.
func TestEgressServesRealTools(t *testing.T) {
	hosttest.Slow(t)
	w := newWorld(t) // only root can create a world
	tools, lacks := hostTools(t)
	w.makeRepository()
	w.create("box", append(allPresets, "--mount", tools+":tools", "--tmp", "500m")...)
	for _, one := range tasks {
		if lacks[one.name] {
			continue
		}
		t.Run(one.name, func(t *testing.T) {
			for way, unset := range map[string]string{"connect": "", "transparent": unproxied} {
				if one.once && way == "transparent" {
					continue
				}
				before := len(w.connections("box"))
				got := w.sh("box", unset+"rm -rf ~/.[cng]* /tmp/apt .local; export PATH=/workspace/tools/bin:$PATH; mkdir $$ && cd $$\n"+one.script)
				assert.Zero(t, got.code, "%s: %s", way, got.errs)
				assert.Equal(t, one.want, got.out, "%s: %s", way, got.errs)
				made := w.connections("box")[before:]
				assert.NotEmpty(t, made, way)
				for _, c := range made {
					if one.rule != "" {
						assert.Equal(t, one.rule, c.Rule, "%s: %+v", way, c)
					}
					assert.Equal(t, c.Kind == "transparent", way == "transparent", "%s: %+v", way, c)
				}
			}
		})
	}
	if os.Getenv("WISBOX_NIGHTLY") != "" {
		t.Run("the preset node", func(t *testing.T) { egressServesTheImageWithNode(t, w.of(t)) })
	}
	t.Run("evaluate_python", func(t *testing.T) { egressInstallsForEvaluatedCode(t, w.of(t)) })
	t.Run("reading, not publishing", func(t *testing.T) { egressReadsAndDoesNotPublish(t, w.of(t), tools) })
}

// egressServesTheImageWithNode: Debian's npm supports proxies, its Node.js 20 doesn't.
func egressServesTheImageWithNode(t *testing.T, w *world) {
	var built struct{ Image string }
	out, errs, code := command(t, filepath.Join(t.TempDir(), "c"), "image", "build", "--json", "--with", "node")
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &built))
	w.create("node", "--allow", "node", "--image", built.Image)
	for _, one := range tasks {
		for _, unset := range []string{"", unproxied} {
			if strings.HasPrefix(one.name, "n") {
				assert.Equal(t, one.want, w.sh("node", unset+"rm -rf ~/.npm; mkdir $$ && cd $$\n"+one.script).out, one.name)
			}
		}
	}
}

// egressInstallsForEvaluatedCode: evaluated code can import packages from pip, even in a kept interpreter that failed
// to import them before. Restricted code can't.
func egressInstallsForEvaluatedCode(t *testing.T, w *world) {
	w.create("eval", "--allow", "python")
	eval := func(args string) string {
		out, _ := w.command(binary(t), "call", "eval", "evaluate_python", `{"sandbox":"container","code":"import wisbox_hello; wisbox_hello.main()"`+args+`}`).CombinedOutput()
		return string(out)
	}
	assert.Contains(t, eval(`,"state":"kept"`), "No module named")
	require.Zero(t, w.sh("eval", "pip install -q wisbox-hello").code)
	assert.Contains(t, eval(``), "hello from pypi")
	assert.Contains(t, eval(`,"state":"kept"`), "hello from pypi")
}

// egressReadsAndDoesNotPublish: the presets for reading allow a fetch and refuse a push.
func egressReadsAndDoesNotPublish(t *testing.T, w *world, tools string) {
	w.create("read", "--allow", "git:read", "--allow", "npm:read", "--mount", tools+":tools")
	const script = `export PATH=/workspace/tools/bin:$PATH; mkdir $$ && cd $$
git clone -q https://github.com/me/hello.git && cd hello && npm install --silent wisbox-hello && npm ci >/dev/null && echo fetched
git commit -q --allow-empty -m more && git push -q origin HEAD:refs/heads/more && echo pushed
printf '{"name":"wisbox-hello","version":"2.0.0"}' >package.json; echo //registry.npmjs.org/:_authToken=x >.npmrc
npm publish --silent >/dev/null && echo published; true`
	assert.Equal(t, "fetched\n", w.sh("read", script).out)
	denied := w.do("log", "read", "--network")
	assert.Contains(t, denied, "git-receive-pack")
	assert.Contains(t, denied, "advisories")
	w.do("session", "allow", "read", "git", "node")
	assert.Equal(t, "fetched\npushed\npublished\n", w.sh("read", script).out)
}

// TestInstallPackagesIsWhatTheTasksDo: each line of the page's table is a task here, with the same rule.
func TestInstallPackagesIsWhatTheTasksDo(t *testing.T) {
	page, err := os.ReadFile("../docs/network.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "## Install packages\n\n| task | flags |\n|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	code := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		rule := strings.TrimPrefix(code.FindStringSubmatch(cells[2])[1], "--allow ")
		for _, command := range code.FindAllStringSubmatch(cells[1], -1) {
			assert.True(t, slices.ContainsFunc(tasks, func(one task) bool {
				words := strings.Fields(command[1])
				return one.rule == rule && strings.Contains(one.script, words[0]+" ") && strings.Contains(one.script, " "+words[len(words)-1]+" ")
			}), line)
		}
	}
}

// TestEgressReachesTheRegistriesOfThisMachine: those in the configuration of its clients, if they answer. A mirror may
// have a private address.
func TestEgressReachesTheRegistriesOfThisMachine(t *testing.T) {
	hosttest.Slow(t)
	if os.Getuid() != 0 {
		t.Skip("other users have no packages of Node.js yet, 200 MB; root's run of this test does")
	}
	ask := func(argv ...string) string {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		require.NoError(t, err)
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), ",")
		return strings.TrimSuffix(first, "/")
	}
	tools := sync.OnceValue(func() string { dir, _ := hostTools(t); return dir })
	for name, c := range map[string]struct{ preset, url, script, want string }{
		"go":     {"go", ask("go", "env", "GOPROXY"), "GOROOT=/workspace/tools GOTOOLCHAIN=local GOPROXY=$0 GONOSUMDB=* go mod download -json golang.org/x/time@v0.5.0 | grep -c GoModSum", "1\n"},
		"npm":    {"npm:read", ask("npm", "config", "get", "registry"), "npm install --silent --registry $0 is-number@7.0.0 && node -p 'require(`is-number`)(1)'", "true\n"},
		"debian": {"debian", "http://deb.debian.org/debian", "apt-get -qq update && apt-get -qq download hello && ls | grep -c hello_.*deb", "1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Timeout: 10 * time.Second}
			resp, err := client.Head(c.url)
			if err != nil {
				t.Skipf("the registry that this machine's %s is set to doesn't answer here: %v", name, err)
			}
			resp.Body.Close()
			h := newHome(t)
			h.do("session", "create", "box", "--allow", c.preset, "--allow", "private:"+resp.Request.URL.Hostname(), "--allow", "private:security.debian.org", "--mount", tools()+":tools")
			for _, unset := range []string{"", unproxied} {
				script := unset + "export PATH=/workspace/tools/bin:$PATH; rm -rf ~/go ~/.npm /tmp/apt; mkdir $$ && cd $$\n" + c.script
				assert.Equal(t, c.want, h.do("exec", "box", "--", "timeout", "300", "bash", "-c", script, c.url))
			}
			h.do("session", "rm", "box")
		})
	}
}
