package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// fakeClaude is a program with the command line of claude. It calls the API and follows its prompt.
const fakeClaude = `#!/bin/bash
for prompt; do :; done
echo "$#: $*"
curl -sSf -H "x-api-key: $ANTHROPIC_API_KEY" "$ANTHROPIC_BASE_URL/v1/models" || echo refused
curl -sS "https://other.example.com/" -o /dev/null
ls -A ~
case $prompt in
write) ` + taskScript + `;;
log) echo x >a.log; echo x >x;;
settings) mkdir .claude; echo '{"hooks":{}}' >.claude/settings.json; echo x >x;;
fail) echo x >x; exit 3;;
overloaded) echo x >x; curl -sS -H "x-api-key: $ANTHROPIC_API_KEY" -d '{}' "$ANTHROPIC_BASE_URL/overloaded/v1/messages"; exit 0;;
quiet) echo x >x; trap 'exit 0' INT TERM; echo begun; sleep 1000 & wait;;
hang) echo x >x; echo begun; sleep 1000;;
nothing) ;;
Fix*) echo fixed >README.md;;
*) read -r line; echo "it read: $line"; [ -t 1 ] && echo "at a terminal";;
esac
`

// codersWorld has the API of claude, a project in a git repository, and the fake agent's image.
func codersWorld(t *testing.T) (w *world, project, image string) {
	w = newWorld(t)
	image = "localhost/wisbox-it-claude:1"
	context := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(context, "claude"), []byte(fakeClaude), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(context, "Containerfile"), []byte("FROM localhost/wisbox\nCOPY claude /usr/local/bin/claude\n"), 0o644))
	w.do("image", "build", "-t", image, context)
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", image).Run() })
	return w, w.project("an odd, name: {it}"), image
}

func (w *world) project(name string) string {
	dir := filepath.Join(w.dir, name)
	out, err := exec.Command("sh", "-ec", `git init -q -b main "$1" && cd "$1" && echo 'a project' >README.md && git add . &&
		git -c user.name=me -c user.email=me@example.com commit -q -m first`, "sh", dir).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
	return dir
}

// agentRan is the result of wisbox agent.
type agentRan struct {
	ran

	report agentSaid // with --json
}

type agentSaid struct {
	Session string
	Kept    bool
	Verdict struct {
		End, Signal string
		Status      int `json:"api_status"`
	}
	Program struct {
		Stdout   string
		Stderr   string
		ExitCode int `json:"exit_code"`
	}
	Changes struct{ Changes []struct{ Path string } }
	NotHome string `json:"not_brought_home"`
	Denied  []struct{ Host, Reason string }

	RunByThemselves []string `json:"run_by_themselves"`
	Connections     []struct {
		Host  string
		Count int
	}
	Limits []struct {
		Name     string
		Enforced bool
	}
	Log struct {
		Head    struct{ Hash string }
		Network struct{ Head struct{ Hash string } }
	}
	Next []string
}

// agent runs an agent to its end; env is NAME=VALUE… before its name.
func (w *world) agent(args ...string) (a agentRan) {
	w.t.Helper()
	cmd := w.command(append([]string{"env", "ANTHROPIC_API_KEY=" + secretValue, "OPENAI_API_KEY=" + secretValue, "GEMINI_API_KEY=" + secretValue, binary(w.t), "agent"}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	require.NotNil(w.t, cmd.ProcessState, err)
	a.ran = ran{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	if strings.HasPrefix(a.out, "{") {
		require.NoError(w.t, json.Unmarshal([]byte(a.out), &a.report), a.out)
	}
	assert.NotContains(w.t, a.out+a.errs, secretValue)
	return a
}

func (a agentRan) changed() (paths []string) {
	for _, c := range a.report.Changes.Changes {
		paths = append(paths, c.Path)
	}
	return paths
}

// TestAnAgentWorksOnACopyWithoutItsKey runs an agent's task from the folder to the branch, and each other way it can
// end.
func TestAnAgentWorksOnACopyWithoutItsKey(t *testing.T) {
	hosttest.Slow(t)
	w, project, image := codersWorld(t)
	t.Run("a task", func(t *testing.T) {
		w := w.of(t)
		a := w.agent("claude", project, "--json", "--image", image, "-p", "write", "--branch", "task", "--", "--model", "opus")
		require.Zero(t, a.code, a.errs)
		assert.Contains(t, a.report.Program.Stdout, "6: -p --dangerously-skip-permissions --model opus -- write\n")
		assert.NotContains(t, a.report.Program.Stdout, "refused")
		assert.Contains(t, a.report.Program.Stdout, ".claude.json")
		assert.Equal(t, []string{"env.txt", "found.txt", "hello.txt"}, a.changed())
		require.Len(t, a.report.Connections, 1)
		assert.Equal(t, "api.anthropic.com", a.report.Connections[0].Host)
		require.Len(t, a.report.Denied, 1)
		assert.Equal(t, "other.example.com", a.report.Denied[0].Host)
		assert.NotEmpty(t, a.report.Limits)
		assert.Len(t, a.report.Log.Head.Hash+a.report.Log.Network.Head.Hash, 2*64)
		assert.False(t, a.report.Kept, "all was brought home")
		shown, err := exec.Command("git", "-C", project, "show", "task:found.txt").Output()
		require.NoError(t, err)
		assert.Empty(t, string(shown), "files with the key")
		status, err := exec.Command("git", "-C", project, "status", "--porcelain").Output()
		require.NoError(t, err)
		assert.Empty(t, string(status), "the folder is as it was")
	})
	t.Run("what stays", func(t *testing.T) {
		w := w.of(t)
		a := w.agent("claude", project, "--image", image, "-p", "write")
		require.Zero(t, a.code, a.errs)
		for _, line := range []string{"+1\t-0\thello.txt", "connected  api.anthropic.com:443, 1 connection", "denied     other.example.com:443", "limits     cpus", "next       wisbox apply claude"} {
			assert.Contains(t, a.errs, line)
		}
		assert.NotContains(t, a.out, "wisbox", "the agent's words alone")
		found, err := exec.Command("grep", "-rl", secretValue, filepath.Join(w.dir, "c")).CombinedOutput()
		assert.Error(t, err, "the key lies in %s", found)
		assert.Contains(t, w.do("apply", "claude"), "written")
		hello, err := os.ReadFile(filepath.Join(project, "hello.txt"))
		require.NoError(t, err)
		assert.Equal(t, "hello from the agent\n", string(hello))
		again := w.agent("claude", project, "--image", image, "-p", "settings", "--apply", "--json")
		assert.Equal(t, "claude-2", again.report.Session)
		assert.Equal(t, 1, again.code)
		assert.Equal(t, []string{".claude/settings.json"}, again.report.RunByThemselves)
		assert.NotEmpty(t, again.report.NotHome)
		assert.NoFileExists(t, filepath.Join(project, "x"))
		w.do("rm", "claude", "claude-2")
	})
	t.Run("another task in the same session", func(t *testing.T) {
		w := w.of(t)
		a := w.agent("claude", project, "--image", image, "-p", "log", "--name", "twice")
		require.Zero(t, a.code, a.errs)
		again := w.agent("claude", "--session", "twice", "-p", "nothing", "--json")
		require.Zero(t, again.code, again.errs)
		assert.Equal(t, "twice", again.report.Session)
		assert.True(t, again.report.Kept)
		assert.Equal(t, []string{"a.log", "x"}, again.changed(), "the files are still there")
		assert.NotContains(t, again.report.Program.Stdout, "refused", "the key is back")
		found, err := exec.Command("grep", "-rl", secretValue, filepath.Join(w.dir, "c")).CombinedOutput()
		assert.Error(t, err, "the key lies in %s", found)
		other := w.agent("gemini", "--session", "twice", "-p", "nothing")
		assert.Equal(t, 125, other.code)
		assert.Contains(t, other.errs, "was not created by wisbox agent for gemini ")
		w.do("rm", "twice")
	})
	t.Run("what a branch leaves out stays", func(t *testing.T) {
		w := w.of(t)
		ignoring := w.project("ignoring")
		out, err := exec.Command("sh", "-ec", `cd "$1" && echo '*.log' >.gitignore && git add . && git -c user.name=me -c user.email=me@example.com commit -q -m ignore`, "sh", ignoring).CombinedOutput()
		require.NoError(t, err, "%s", out)
		a := w.agent("claude", ignoring, "--image", image, "-p", "log", "--branch", "b", "--name", "ignoring")
		require.Zero(t, a.code, a.errs)
		assert.Contains(t, a.errs, "left out   1 new file that the repository ignores")
		assert.Contains(t, a.errs, "in the session ignoring, which stays")
		w.do("rm", "ignoring")
	})
	t.Run("other ends", func(t *testing.T) {
		w := w.of(t)
		a := w.agent("claude", project, "--image", image, "-p", "fail", "--apply", "--name", "failed")
		assert.Equal(t, 3, a.code)
		assert.Contains(t, a.errs, "nothing was brought home: the agent failed")
		assert.NoFileExists(t, filepath.Join(project, "x"))
		a = w.agent("claude", project, "--image", image, "-p", "hang", "--timeout", "1s", "--name", "hung")
		assert.Equal(t, 124, a.code)
		assert.Contains(t, a.errs, "+1\t-0\tx")
		a = w.agent("claude", project, "--image", image, "-p", "nothing", "--deny", "api.anthropic.com", "--json")
		assert.Zero(t, a.code, a.errs)
		assert.Contains(t, a.report.Program.Stdout, "refused")
		assert.Len(t, a.report.Denied, 2)
		assert.Empty(t, a.report.Connections)
		assert.False(t, a.report.Kept, "there is nothing to keep")
		w.do("rm", "failed", "hung")
	})
	t.Run("an interrupt", func(t *testing.T) {
		w := w.of(t)
		cmd := w.command("env", "ANTHROPIC_API_KEY="+secretValue, binary(t), "agent", "claude", project, "--image", image, "-p", "hang")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs strings.Builder
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		awaitLine(t, out, "begun")
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		assert.Equal(t, 130, cmd.ProcessState.ExitCode(), errs.String())
		assert.Contains(t, errs.String(), "+1\t-0\tx")
		assert.Contains(t, errs.String(), "next       wisbox diff claude --patch")
		w.do("rm", "claude")
	})
	t.Run("an interrupt that the agent hides", func(t *testing.T) {
		w := w.of(t)
		cmd := w.command("env", "ANTHROPIC_API_KEY="+secretValue, binary(t), "agent", "claude", project, "--image", image, "-p", "quiet", "--apply")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		var errs strings.Builder
		cmd.Stderr = &errs
		require.NoError(t, cmd.Start())
		awaitLine(t, out, "begun")
		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
		assert.Equal(t, 130, cmd.ProcessState.ExitCode(), errs.String())
		assert.Contains(t, errs.String(), "nothing was brought home: it was interrupted by INT")
		assert.NoFileExists(t, filepath.Join(project, "x"))
		w.do("rm", "claude")
	})
	t.Run("an error of the API that the agent hides", func(t *testing.T) {
		w := w.of(t)
		a := w.agent("claude", project, "--image", image, "-p", "overloaded", "--apply", "--json", "--name", "overloaded")
		assert.Equal(t, 1, a.code, a.errs)
		assert.Zero(t, a.report.Program.ExitCode)
		assert.Equal(t, "api_error", a.report.Verdict.End)
		assert.Equal(t, 529, a.report.Verdict.Status)
		assert.Contains(t, a.report.NotHome, "529")
		assert.NoFileExists(t, filepath.Join(project, "x"))
		w.do("rm", "overloaded")
	})
	t.Run("a terminal", func(t *testing.T) {
		w := w.of(t)
		cmd := w.command("env", "ANTHROPIC_API_KEY="+secretValue, binary(t), "agent", "claude", project, "--image", image)
		p := atTerminal(t, cmd, &pty.Winsize{Rows: 30, Cols: 100})
		p.types("", ".claude.json")
		p.types("what it reads\r", "it read: what it reads")
		p.types("", "at a terminal")
		p.types("", "the report of claude in the session claude, which was removed")
	})
}

// awaitLine reads until it finds a line.
func awaitLine(t *testing.T, from interface{ Read([]byte) (int, error) }, line string) {
	t.Helper()
	var seen strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), line+"\n") {
		n, err := from.Read(buf)
		seen.Write(buf[:n])
		require.NoError(t, err, seen.String())
	}
}

// TestAgentsOfNpmDoATask runs a task with the real programs, against scripted APIs under the real host names.
func TestAgentsOfNpmDoATask(t *testing.T) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it builds images of four agents from npm's registry; make nightly runs it")
	}
	w := newWorld(t)
	for _, name := range []string{"claude", "codex", "gemini", "opencode"} {
		t.Run(name, func(t *testing.T) {
			w, project := w.of(t), w.project(name)
			buildAgent(t, name, project)
			a := w.agent(name, project, "-p", "Write hello.txt", "--timeout", "3m", "--keep", "--json")
			t.Logf("%s\n%s", a.errs, w.do("log", name, "--network"))
			require.Zero(t, a.code, a.out)
			assert.Contains(t, a.report.Program.Stdout, "It is written.")
			assert.Equal(t, []string{"env.txt", "found.txt", "hello.txt"}, a.changed())
			require.Len(t, a.report.Connections, 1, "to the API alone")
			read := func(path string) string { return w.do("call", name, "read_file", `{"file_path":"`+path+`"}`) }
			assert.Contains(t, read("hello.txt"), "hello from the agent")
			assert.NotContains(t, read("found.txt"), "/", "files with the key")
			assert.Contains(t, read("env.txt"), "wisbox-placeholder-")
			assert.NotContains(t, read("env.txt"), "HOME=/tmp", "programs refuse homes below the temporary folder")
			assert.NotRegexp(t, `(?i)warn|deprecat|refus|unable|could not`, a.report.Program.Stderr, "its first start")
			w.do("apply", name)
			assert.FileExists(t, filepath.Join(project, "hello.txt"))
			w.do("rm", name)
			found, err := exec.Command("grep", "-rl", secretValue, filepath.Join(w.dir, "c"), project).CombinedOutput()
			assert.Error(t, err, "the key lies in %s", found)
		})
	}
}

// buildAgent builds the image with wisbox on this host, which reaches npm's registry. The agent itself reaches nothing.
func buildAgent(t *testing.T, name, project string) {
	cmd := exec.Command(binary(t), "agent", name, project, "-p", "nothing", "--deny", "api.anthropic.com", "--deny", "api.openai.com", "--deny", "generativelanguage.googleapis.com", "--timeout", "1s")
	cmd.Env = append(os.Environ(), "ANTHROPIC_API_KEY=no-key-at-all", "OPENAI_API_KEY=no-key-at-all", "GEMINI_API_KEY=no-key-at-all", "WISBOX_CACHE="+filepath.Join(t.TempDir(), "c"))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	t.Logf("%s, %v\n%s", time.Since(began).Round(time.Second), err, out)
	require.Contains(t, string(out), "the report of "+name)
}

// TestTheReadmesAgentJob runs the commands of the README with an agent that is not claude.
func TestTheReadmesAgentJob(t *testing.T) {
	w, project, image := codersWorld(t)
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, block, found := strings.Cut(string(readme), "### Run a coding agent in a box\n\n```sh\n")
	require.True(t, found)
	block, _, _ = strings.Cut(block, "```")
	block = strings.NewReplacer("…", secretValue, "wisbox agent claude", "$WISBOX agent claude --image "+image).Replace(block)
	cmd := w.command("sh", "-ec", `cd "$1"`+"\n"+block, "sh", project)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "-a project\n+fixed\n")
}
