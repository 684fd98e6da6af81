package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

// forAgent returns the options for an agent's command line, with a key in the environment.
func forAgent(t *testing.T, name string, set func(*agentOptions)) (*agentOptions, *wisbox.SessionOptions, error) {
	t.Helper()
	for _, c := range coders {
		for _, api := range c.apis {
			t.Setenv(api.key, "") // as if it were not there
			require.NoError(t, os.Unsetenv(api.key))
		}
	}
	c, err := coderOf(name)
	require.NoError(t, err)
	o := &agentOptions{coder: c, path: t.TempDir(), prompt: "x"}
	t.Setenv(c.apis[0].key, "k3y-of-the-api")
	o.register(pflag.NewFlagSet("agent", pflag.ContinueOnError))
	o.alone = true
	set(o)
	so, err := (&app{}).agentSession(o)
	return o, so, err
}

func TestEachAgentOfTheTableIsWhole(t *testing.T) {
	for _, c := range coders {
		t.Run(c.name, func(t *testing.T) {
			o, so, err := forAgent(t, c.name, func(*agentOptions) {})
			require.NoError(t, err)
			assert.Regexp(t, exactVersion(), c.version)
			assert.Contains(t, strings.Join(c.argv("do it", []string{"--model", "m"}), " "), "--model m")
			assert.Contains(t, strings.Join(c.argv("do it", nil), " "), "do it")
			assert.NotContains(t, strings.Join(c.argv("", nil), " "), "{")
			base, err := url.Parse(c.apis[0].url)
			require.NoError(t, err)
			assert.Equal(t, []string{base.Host + ":443"}, so.Allow)
			require.Len(t, so.Inject, 1)
			assert.Contains(t, so.Inject[0], ",env="+c.apis[0].key)
			assert.Equal(t, []byte("k3y-of-the-api"), so.Secrets[c.apis[0].key].Value)
			for name, value := range so.Env {
				assert.NotContains(t, value, "k3y-of-the-api", name)
				assert.NotRegexp(t, `\{[a-z]+\}`, value, name)
			}
			for path, text := range o.home {
				assert.NotContains(t, text, "k3y-of-the-api", path)
				assert.NotRegexp(t, `\{[a-z]+\}`, text, path)
				var any map[string]any
				if strings.HasSuffix(path, ".json") {
					assert.NoError(t, json.Unmarshal([]byte(text), &any), path)
				} else {
					assert.NoError(t, toml.Unmarshal([]byte(text), &any), path)
				}
			}
		})
	}
}

func TestAPromptIsOneArgumentThatIsNoFlag(t *testing.T) {
	for _, c := range coders {
		argv := c.argv("--version {args}", []string{"{prompt}"})
		last := argv[len(argv)-1]
		if last != "--prompt=--version {args}" {
			assert.Equal(t, []string{"--", "--version {args}"}, argv[len(argv)-2:], c.name)
		}
		assert.Contains(t, argv, "{prompt}", "what the command line has stays as it is")
	}
}

func TestAnotherServerGetsTheKeyOverTLSAlone(t *testing.T) {
	_, so, err := forAgent(t, "claude", func(o *agentOptions) { o.apiURL = "https://gateway.example.com:8443/a/" })
	require.NoError(t, err)
	assert.Equal(t, []string{"gateway.example.com:8443"}, so.Allow)
	assert.Equal(t, []string{"gateway.example.com:x-api-key=ANTHROPIC_API_KEY,path=/a,env=ANTHROPIC_API_KEY,alone=yes"}, so.Inject)
	assert.Equal(t, "https://gateway.example.com:8443/a/", so.Env["ANTHROPIC_BASE_URL"])

	_, so, err = forAgent(t, "codex", func(o *agentOptions) { o.apiURL, o.given.Allow = "http://127.0.0.1:11434/v1", []string{"host:11434"} })
	require.NoError(t, err)
	assert.Equal(t, []string{"host:11434"}, so.Allow)
	assert.Empty(t, so.Inject)
	assert.Empty(t, so.Secrets, "a server of this machine gets no key")
	assert.Equal(t, "wisbox-no-key", so.Env["OPENAI_API_KEY"])
}

func TestAnAgentTakesTheAPIWhoseKeyIsThere(t *testing.T) {
	_, so, err := forAgent(t, "opencode", func(*agentOptions) {
		require.NoError(t, os.Unsetenv("ANTHROPIC_API_KEY"))
		t.Setenv("OPENAI_API_KEY", "another-key")
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"api.openai.com:443"}, so.Allow)
	assert.NotContains(t, so.Secrets, "ANTHROPIC_API_KEY")
}

func TestWhatTheUserSetsWins(t *testing.T) {
	_, so, err := forAgent(t, "claude", func(o *agentOptions) {
		o.sessionFlags.env.vars = []string{"DISABLE_AUTOUPDATER=0"}
		o.given.Limits.Memory, o.given.Limits.PIDs = 1<<30, 64
	})
	require.NoError(t, err)
	assert.Equal(t, "0", so.Env["DISABLE_AUTOUPDATER"])
	assert.EqualValues(t, 1<<30, so.Limits.Memory)
	assert.EqualValues(t, 64, so.Limits.PIDs)
	assert.Zero(t, so.Limits.Tmp, "what the memory has room for")
}

func TestNoKeyComesInByAVariableOrASecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".env")
	require.NoError(t, os.WriteFile(file, []byte("A=1\nANTHROPIC_API_KEY=another-key\n"), 0o600))
	for name, set := range map[string]func(*agentOptions){
		"--env NAME":        func(o *agentOptions) { o.sessionFlags.env.vars = []string{"ANTHROPIC_API_KEY"} },
		"--env-file":        func(o *agentOptions) { o.sessionFlags.env.files = []string{file} },
		"another variable":  func(o *agentOptions) { o.sessionFlags.env.vars = []string{"ANTHROPIC_AUTH=Bearer k3y-of-the-api"} },
		"the agent's other": func(o *agentOptions) { o.sessionFlags.env.vars = []string{"OPENAI_API_KEY=x"} },
		"--key-env":         func(o *agentOptions) { o.keyEnv, o.sessionFlags.env.vars = "GATEWAY_KEY", []string{"GATEWAY_KEY"} },
		"a readable secret": func(o *agentOptions) { o.keyEnv, o.secrets = "GATEWAY_KEY", []string{"ANTHROPIC_API_KEY=" + file} },
		"a secret's value":  func(o *agentOptions) { o.secrets = []string{"SAME=env"} },
		"a server of this one": func(o *agentOptions) {
			o.apiURL, o.given.Allow, o.secrets = "http://localhost:1/", []string{"host:1"}, []string{"OPENAI_API_KEY=" + file}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GATEWAY_KEY", "g4teway-key")
			t.Setenv("SAME", "k3y-of-the-api")
			_, _, err := forAgent(t, "opencode", set)
			require.ErrorContains(t, err, "would bring an API key into the session; remove --")
			assert.ErrorAs(t, err, &usageError{})
			assert.NotContains(t, err.Error(), "k3y-of")
		})
	}
	for _, set := range []func(*agentOptions){
		func(o *agentOptions) {
			o.sessionFlags.env.vars = []string{"ANTHROPIC_API_KEY=wisbox-placeholder-ANTHROPIC_API_KEY"}
		},
		func(o *agentOptions) { o.secrets = []string{"ANTHROPIC_API_KEY=" + file} }, // programs can't read this secret: the proxy adds it to requests
		func(o *agentOptions) { o.secrets = []string{"OTHER=" + file} },
	} {
		_, _, err := forAgent(t, "opencode", set)
		require.NoError(t, err)
	}
}

// TestLocksAreOfTheVersionsThatAreRun: each package has a hash, and both processors are there.
func TestLocksAreOfTheVersionsThatAreRun(t *testing.T) {
	for _, name := range []string{"claude", "codex", "gemini"} {
		c, err := coderOf(name)
		require.NoError(t, err)
		manifest, raw := c.lock(c.version)
		var lock struct {
			Packages map[string]struct{ Version, Integrity string }
		}
		require.NoError(t, json.Unmarshal(raw, &lock))
		assert.Equal(t, c.version, lock.Packages["node_modules/"+c.pkg].Version)
		assert.JSONEq(t, `{"name":"wisbox-agent","private":true,"dependencies":{"`+c.pkg+`":"`+c.version+`"}}`, string(manifest))
		var all strings.Builder
		for path, p := range lock.Packages {
			all.WriteString(path + " ")
			assert.True(t, path == "" || strings.HasPrefix(p.Integrity, "sha512-"), path)
		}
		assert.Contains(t, all.String(), "linux-x64")
		assert.Contains(t, all.String(), "linux-arm64")
		_, none := c.lock("0.0.1")
		assert.Nil(t, none)
	}
}

func TestFilesThatRunByThemselvesAreKnown(t *testing.T) {
	for _, path := range []string{".claude/settings.json", "sub/.gitattributes", "sub/.vscode/tasks.json", ".envrc", ".MCP.json", "CLAUDE.md", "a/.envrc.local", "x.code-workspace", "a/.github/Workflows/b.yml", "Jenkinsfile", "venv/x.pth",
		"docs/.gitignore", ".github/CODEOWNERS", ".github/a/workflows", ".lefthook.yml", ".dir-locals-2.el", "mise.local.toml", ".config/mise/config.toml", ".github/copilot-instructions.md", ".rules", ".forgejo/workflows/a", ".helix/languages.toml",
		".Rprofile", ".irbrc", "a/.pdbrc", ".ghci", ".ocamlinit", ".iex.exs", "rust-toolchain.toml", ".pylintrc", "flake.nix", "package.json", "sub/Makefile", "conftest.py", "vite.config.ts", "web/tsconfig.base.json",
		"docker-compose.yml", "compose.override.yaml", "Dockerfile.dev", "App.csproj", "GRADLEW.bat", "package-lock.json", "Cargo.lock", "requirements-dev.txt", "karma.conf.js", "ansible.cfg", "docs/conf.py", "App.vcxproj", "MSBuild.rsp", "main.tf", "book.toml", "ma\u212aefile", "\u200c.envrc"} {
		assert.True(t, runsByItself(path), path)
	}
	for _, path := range []string{"main.go", "claude/x", "docs/a.md", "github/workflows/a.yml", "pth", "makefile.go", "config.js", "src/composer.go"} {
		assert.False(t, runsByItself(path), path)
	}
	for _, pattern := range selfRunning {
		_, err := path.Match(pattern, "x")
		require.NoError(t, err, pattern)
		assert.Equal(t, strings.ToLower(pattern), pattern)
		assert.NotContains(t, pattern, "/")
	}
}

func TestRemovedAndRenamedFilesThatRunByThemselvesAreKnown(t *testing.T) {
	assert.Equal(t, []string{".envrc", ".vscode/tasks.json"}, runByThemselves(fstest.MapFS{}, []wisbox.FileChange{
		{Path: ".envrc", Status: "removed"}, {Path: "a.json", From: ".vscode/tasks.json", Status: "renamed"}, {Path: "main.go", Status: "changed"},
	}, onHost{}))
}

func TestWhatLooksLikeABareRepositoryIsKnown(t *testing.T) {
	file := &fstest.MapFile{}
	tree := fstest.MapFS{
		"a/HEAD": file, "a/config": file, "a/objects/x": file, "a/refs/heads/main": file,
		"b/head": file, "b/commondir": file, "c/HEAD": file, "c/config": file, "c/refs/x": file,
	}
	assert.Equal(t, []string{"a/config", "a/refs/heads/main", "b/head"}, runByThemselves(tree, []wisbox.FileChange{
		{Path: "a/config", Status: "changed"}, {Path: "a/refs/heads/main", Status: "added"}, {Path: "b/head", Status: "added"},
		{Path: "c/config", Status: "added"}, {Path: "gone/HEAD", Status: "removed"},
	}, onHost{}))
	assert.Equal(t, []string{"\xff/x"}, runByThemselves(os.DirFS(t.TempDir()), []wisbox.FileChange{{Path: "\xff/x", Status: "added"}}, onHost{}), "a directory that can't be read counts")
	assert.Equal(t, []string{"config"}, runByThemselves(fstest.MapFS{"HEAD": file, "config": file, "objects/x": file, "refs/x": file}, []wisbox.FileChange{{Path: "config", Status: "added"}}, onHost{}))
}

func TestWhatALinkOfAnotherNameLeadsToIsKnown(t *testing.T) {
	file, link := &fstest.MapFile{}, func(to string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)} }
	tree := fstest.MapFS{
		"env.sh": file, ".envrc": link("env.sh"), "ci/build.yml": file, ".github/workflows": link("../ci"), "plain": link("main.go"), "main.go": file,
		"abs": file, "sub/.envrc": link("/workspace/abs"), "x": file, "hop": link("x"), ".npmrc": link("hop"), "loop": link("pool"), "pool": link("loop"),
	}
	var changes []wisbox.FileChange
	for _, name := range []string{"env.sh", "ci/build.yml", "main.go", "abs", "x", "loop", "hooks/pre-commit", "hooksx"} {
		changes = append(changes, wisbox.FileChange{Path: name, Status: "changed"})
	}
	assert.Equal(t, []string{"env.sh", "ci/build.yml", "abs", "x", "hooks/pre-commit"}, runByThemselves(tree, changes, onHost{hooks: []string{"hooks"}}))
	assert.Len(t, runByThemselves(tree, changes, onHost{hooks: []string{"."}}), len(changes), "the folder itself has hooks")
}

func TestLinksToTheTopAndThroughLinksAreKnown(t *testing.T) {
	one := func(links map[string]string, changed string, host onHost) []string {
		tree := fstest.MapFS{changed: &fstest.MapFile{}, "plain": &fstest.MapFile{}}
		for name, to := range links {
			tree[name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)}
		}
		return runByThemselves(tree, []wisbox.FileChange{{Path: changed, Status: "changed"}}, host)
	}
	for name, to := range map[string]string{".vscode": ".", "pk/.claude": "..", ".claude": "/workspace", ".codex": "/workspace/", ".idea": "/", "pk/.zed": "../.."} {
		assert.Equal(t, []string{"settings.json"}, one(map[string]string{name: to}, "settings.json", onHost{}), "%s -> %s", name, to)
	}
	assert.Equal(t, []string{"x/cfg/config.toml"}, one(map[string]string{"dl": "x/y", ".codex": "dl/../cfg"}, "x/cfg/config.toml", onHost{}))
	assert.Equal(t, []string{"x/cfg/config.toml"}, one(map[string]string{"dl": "x/y", ".codex": "/workspace/dl/../cfg"}, "x/cfg/config.toml", onHost{}))
	assert.Empty(t, one(map[string]string{"pk/docs": "..", "self": ".", "out": "/etc/passwd", "up/b": "./..//x"}, "settings.json", onHost{}))
}

// TestLinksOfTheHostAreKnown checks links that a mount skips: on the host, they lead to changed
// files.
func TestLinksOfTheHostAreKnown(t *testing.T) {
	root := t.TempDir()
	dir, other := filepath.Join(root, "p"), filepath.Join(root, "q")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	require.NoError(t, os.Symlink(dir, other))
	changed := []wisbox.FileChange{{Path: "at/shared/claude/x", Status: "changed"}}
	for _, mounted := range []string{dir, other} {
		host := onHost{mounts: []hostmount.Mount{{HostPath: mounted, MountPath: "at"}}}
		assert.Empty(t, runByThemselves(fstest.MapFS{}, changed, host))
		for _, to := range []string{filepath.Join(dir, "shared/claude"), filepath.Join(dir, "shared"), "../../p/shared", dir, "../.."} {
			link := filepath.Join(dir, "sub", ".gemini")
			require.NoError(t, os.Symlink(to, link))
			assert.Equal(t, []string{"at/shared/claude/x"}, runByThemselves(fstest.MapFS{}, changed, host), to)
			require.NoError(t, os.Remove(link))
		}
	}
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	assert.Empty(t, runByThemselves(fstest.MapFS{}, changed, onHost{mounts: []hostmount.Mount{{HostPath: file, MountPath: "."}}}), "a file that is mounted has no links")
}

// TestHooksOfTheRepositoryAreFound whatever they are called.
func TestHooksOfTheRepositoryAreFound(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	git := func(args ...string) {
		out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	git("init", "-q")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "sub", "tools"), 0o755))
	folders := func(below, at string) []string {
		return hookFolders(t.Context(), []hostmount.Mount{{HostPath: filepath.Join(dir, below), MountPath: at}}).hooks
	}
	assert.Empty(t, folders("", "."))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".git", "hooks"), 0o700))
	require.NoError(t, os.Symlink("../../sub/pre-commit", filepath.Join(dir, ".git", "hooks", "pre-commit")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "pre-commit"), nil, 0o600))
	assert.Equal(t, []string{"sub/pre-commit"}, folders("", "."), "a hook may be a link to a script of the project")
	require.NoError(t, os.Remove(filepath.Join(dir, ".git", "hooks", "pre-commit")))
	git("config", "core.hooksPath", "sub/tools")
	assert.Equal(t, []string{"sub/tools"}, folders("", "."))
	assert.Equal(t, []string{"p/tools"}, folders("sub", "p"))
	assert.Equal(t, []string{"."}, folders("sub/tools", "."))
	git("config", "core.hooksPath", filepath.Join(dir, "sub"))
	assert.Equal(t, []string{"sub"}, folders("", "."))
	assert.Equal(t, []string{"."}, folders("sub/tools", "."))
	git("config", "core.hooksPath", t.TempDir())
	assert.Empty(t, folders("", "."))
	assert.Empty(t, hookFolders(t.Context(), []hostmount.Mount{{HostPath: t.TempDir(), MountPath: "."}}).hooks)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".git", "config"), []byte("[core"), 0o600))
	assert.Equal(t, []string{"."}, folders("sub", "p"), "a repository that git can't read may have any")
}

func TestConnectionsAreCountedByTheirHost(t *testing.T) {
	r := &agentReport{}
	for _, line := range []string{
		`{"event":"open","host":"a.example.com","port":443}`, `{"event":"close","host":"a.example.com","port":443,"bytes_in":5,"bytes_out":7}`,
		`{"event":"open","host":"a.example.com","port":443}`, `{"event":"request","host":"a.example.com","port":443,"method":"GET"}`,
		`{"event":"denied","host":"b.example.com","port":80,"reason":"no rule allows it"}`, `{"event":"denied","host":"b.example.com","port":80,"reason":"no rule allows it","count":3}`,
		`not a record`,
	} {
		require.NoError(t, r.connection([]byte(line)))
	}
	assert.Equal(t, []connections{{Host: "a.example.com", Port: 443, Count: 2, In: 5, Out: 7}}, r.Connections)
	assert.Equal(t, []connections{{Host: "b.example.com", Port: 80, Count: 4, Reason: "no rule allows it"}}, r.Denied)
}

// TestAdviceAboutDenialsHasTheirReasons: a rule doesn't help a host that is allowed.
func TestAdviceAboutDenialsHasTheirReasons(t *testing.T) {
	r := &agentReport{}
	assert.Empty(t, r.advice())
	for _, line := range []string{
		`{"event":"denied","host":"api.example.com","port":443,"reason":"the session has sent its 67108864 bytes","advice":"--egress-out SIZE sets another limit, for a new session"}`,
		`{"event":"denied","host":"b.example.com","port":443,"reason":"the session has sent its 67108864 bytes","advice":"--egress-out SIZE sets another limit, for a new session"}`,
		`{"event":"denied","host":"10.0.0.1","port":443,"reason":"it is an IP address; use a name, addresses can't be allowed"}`,
	} {
		require.NoError(t, r.connection([]byte(line)))
	}
	assert.Equal(t, []string{"--egress-out SIZE sets another limit, for a new session"}, r.advice())
	for i := range 7 {
		line := fmt.Sprintf(`{"event":"denied","host":"h%d.example.com","port":443,"reason":"no rule allows it","allow":"h%[1]d.example.com:443"}`, i)
		require.NoError(t, r.connection([]byte(line)))
		require.NoError(t, r.connection([]byte(line)))
	}
	require.Len(t, r.advice(), 2)
	assert.Equal(t, "if the agent needs it: --allow h0.example.com:443 --allow h1.example.com:443 --allow h2.example.com:443 --allow h3.example.com:443 --allow h4.example.com:443 and 2 more", r.advice()[1])
}

// TestTwoAgentsDoNotWorkInOneSession: the first to end would stop the other's programs.
func TestTwoAgentsDoNotWorkInOneSession(t *testing.T) {
	cache := t.TempDir()
	first, second := &agentOptions{}, &agentOptions{}
	require.NoError(t, first.takeTurn(cache, "box"))
	assert.Equal(t, tool.Busy, tool.KindOf(second.takeTurn(cache, "box")))
	require.NoError(t, second.takeTurn(cache, "other"))
	require.NoError(t, first.turn.Close())
	require.NoError(t, second.takeTurn(cache, "box"))
}

// TestAnAgentGoesOnOnlyWhereItWas, whatever the session allows.
func TestAnAgentGoesOnOnlyWhereItWas(t *testing.T) {
	c, err := coderOf("opencode")
	require.NoError(t, err)
	o := &agentOptions{coder: c, session: "devbox", apiURL: "http://localhost:11434/v1"}
	made := &wisbox.SessionOptions{Allow: []string{"host:11434"}}
	require.NoError(t, o.reachAPI(made))
	_, err = o.reachAgain(made)
	require.NoError(t, err)
	byHand := &wisbox.SessionOptions{Allow: []string{"host:11434"}}
	_, err = o.reachAgain(byHand)
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	made.Env["OPENAI_API_KEY"] = "sk-something-real"
	_, err = o.reachAgain(made)
	assert.ErrorContains(t, err, "would bring an API key into the session")
}
