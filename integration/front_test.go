package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// engine returns a command of the engine alone.
func (h *home) engine(args ...string) *exec.Cmd {
	h.t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(h.t, err)
	found, err := filepath.Glob(filepath.Join(cache, "wisbox-engine", "*", "wisbox"))
	require.NoError(h.t, err)
	var newest string
	var at time.Time
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(at) {
			newest, at = path, info.ModTime()
		}
	}
	cmd := h.command(args...)
	cmd.Path = newest
	return cmd
}

// TestHelpIsTheEngines: it was written when the command was built.
func TestHelpIsTheEngines(t *testing.T) {
	h := newHome(t)
	var pages []string
	for line := range strings.SplitSeq(h.do("__complete", ""), "\n") {
		name, _, found := strings.Cut(line, "\t")
		if found {
			pages = append(pages, name)
		}
	}
	require.Greater(t, len(pages), 40)
	for _, page := range append(pages, "", "lab context", "session ls") {
		for _, args := range [][]string{append(strings.Fields(page), "--help"), append([]string{"help"}, strings.Fields(page)...)} {
			want, err := h.engine(args...).Output()
			require.NoError(t, err, "%v", args)
			got, err := h.command(args...).Output()
			require.NoError(t, err, "%v", args)
			assert.Equal(t, string(want), string(got), "%v", args)
		}
	}
}

var measured = regexp.MustCompile(`"(duration_ms|cpu_ms|max_rss_bytes)":\d+`)

// TestAQuickCommandIsTheSameCommand compares what the small program in front does itself with what the engine behind
// it does, which does every command that begins with a flag.
func TestAQuickCommandIsTheSameCommand(t *testing.T) {
	h := newHome(t)
	h.do("create", "box", "--memory", "256m")
	h.do("exec", "box", "--", "sh", "-c", "echo text >f; echo '#!/no/such/interpreter' >script; chmod +x script")
	type end struct {
		out, errs string
		code      int
	}
	run := func(cmd *exec.Cmd, input string) end {
		var out, errs strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
		err := cmd.Run()
		exit := (*exec.ExitError)(nil)
		if err != nil && !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return end{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	}
	for name, args := range map[string][]string{
		"nothing":                     {"exec", "box", "--", "true"},
		"without --":                  {"exec", "box", "echo", "-n", "a  b", ""},
		"input and both outputs":      {"exec", "box", "--", "sh", "-c", "cat; echo err >&2; exit 3"},
		"much output":                 {"exec", "box", "--", "seq", "300000"},
		"no program":                  {"exec", "box", "--", "nosuchprogram"},
		"no interpreter":              {"exec", "box", "--", "./script"},
		"a signal":                    {"exec", "box", "--", "sh", "-c", "kill -SEGV $$"},
		"no memory":                   {"exec", "box", "--", "python3", "-c", "x = bytearray(600 << 20)"},
		"no network":                  {"exec", "box", "--", "python3", "-c", "import socket; socket.create_connection(('pypi.org', 443))"},
		"no session":                  {"exec", "nosuch", "--", "true"},
		"no name":                     {"exec", "NO/SUCH", "--", "true"},
		"no command":                  {"exec", "box", "--"},
		"a flag behind":               {"exec", "box", "-w", "/", "true"},
		"not UTF-8":                   {"exec", "box", "--", "echo", "\xff"},
		"a tool":                      {"call", "box", "read_file", `{"file_path":"f"}`},
		"a tool without arguments":    {"call", "box", "ls"},
		"arguments from input":        {"call", "box", "ls", "-"},
		"a program by a tool":         {"call", "box", "shell_execute", `{"script":"echo '\u001b[31m'; exit 4"}`},
		"no tool":                     {"call", "box", "nosuch"},
		"wrong arguments":             {"call", "box", "ls", `{"nosuch":1}`},
		"no JSON":                     {"call", "box", "ls", `{`},
		"no object":                   {"call", "box", "ls", `7`},
		"a tool of no session":        {"call", "nosuch", "ls"},
		"a tool's path that is wrong": {"call", "box", "read_file", `{"file_path":"../x"}`},
		"a flag of call":              {"call", "--profile", "anthropic", "box", "ls"},
		"a program's help":            {"exec", "box", "--", "echo", "--help"},
		"sessions":                    {"ls"},
		"sessions, and more":          {"ls", "more"},
		"commands that begin so":      {"__complete", "e"},
		"all commands":                {"__complete", ""},
		"sessions for exec":           {"__complete", "exec", ""},
		"sessions for a removal":      {"__complete", "rm", "b"},
		"flags":                       {"__complete", "exec", "--"},
		"files in a session":          {"__complete", "exec", "box", ""},
		"names of nothing":            {"__complete", "version", ""},
		"no such help":                {"help", "nosuch"},
		"help of a hidden command":    {"session", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			input := "{}"
			got := run(h.command(args...), input)
			want := run(h.engine(args...), input)
			for _, e := range []*end{&got, &want} {
				e.out = measured.ReplaceAllString(e.out, "")
			}
			assert.Equal(t, want, got)
		})
	}
	out, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer out.Close()
	for _, args := range [][]string{{"exec", "box", "--", "echo", "x"}, {"call", "box", "ls"}} {
		for _, with := range []*exec.Cmd{h.command(args...), h.engine(args...)} {
			var errs bytes.Buffer
			cmd := with
			cmd.Stdout, cmd.Stderr = out, &errs
			require.Error(t, cmd.Run(), "%v", args)
			assert.Contains(t, errs.String(), "the output can't be written: no space left on device", "%v", args)
		}
	}
}

// TestAQuickCommandInitialisesLittle: in the engine's place, it would initialise 240 packages.
func TestAQuickCommandInitialisesLittle(t *testing.T) {
	h := newHome(t)
	h.do("create", "box")
	h.do("exec", "box", "--", "true")
	cmd := h.command("exec", "box", "--", "true")
	cmd.Env = append(cmd.Env, "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	n := strings.Count("\n"+string(out), "\ninit ")
	assert.Positive(t, n)
	assert.LessOrEqual(t, n, 60, "%s", out)
}

// TestAQuickCommandTakesSignals: as the engine, it passes them on, and ends by SIGPIPE if its reader does.
func TestAQuickCommandTakesSignals(t *testing.T) {
	h := newHome(t)
	h.do("create", "box")
	h.do("exec", "box", "--", "true")
	cmd := h.command("exec", "box", "--", "sh", "-c", "trap 'echo got it; exit 7' INT; echo ready; while :; do sleep 0.1; done")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	h.begin(cmd)
	line := make([]byte, 6)
	_, err = out.Read(line)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	rest := make([]byte, 7)
	_, err = out.Read(rest)
	require.NoError(t, err)
	assert.Equal(t, "got it\n", string(rest))
	_ = cmd.Wait()
	assert.Equal(t, 7, cmd.ProcessState.ExitCode())

	cmd = h.command("exec", "box", "--", "sh", "-c", "yes | head -c 10000000; exec sleep 1000")
	out, err = cmd.StdoutPipe()
	require.NoError(t, err)
	h.begin(cmd)
	_, err = out.Read(line)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	_ = cmd.Wait()
	assert.Equal(t, 128+int(syscall.SIGPIPE), cmd.ProcessState.ExitCode())
	h.await("the program's end", func() bool { return !strings.Contains(h.do("exec", "box", "--", "ps", "-e"), "sleep") })
}

// TestAQuickCommandNeedsNoHolder: it leaves a session without one, and a paused one, to the engine.
func TestAQuickCommandNeedsNoHolder(t *testing.T) {
	h := newHome(t)
	h.do("create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo x >f")
	h.do("stop", "box")
	assert.Equal(t, "x\n", h.do("exec", "box", "--", "cat", "f"))
	if _, said, code := command(t, h.cache, "pause", "box"); code == 0 || !strings.Contains(said, "can't pause") { // as if only root could use the freezer
		require.Zero(t, code, said)
		assert.Contains(t, h.fail("exec", "box", "--", "true"), "paused")
		h.do("resume", "box")
	}
	h.do("rm", "-f", "box")
	assert.Contains(t, h.fail("exec", "box", "--", "true"), "not_found")
}

// TestTheEngineIsFoundAnywhere: without a directory to keep it, and for programs that the engine starts.
func TestTheEngineIsFoundAnywhere(t *testing.T) {
	h := newHome(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, env := range map[string][]string{
		"a file":         {"HOME=" + file, "XDG_CACHE_HOME="},
		"none":           {"HOME=", "XDG_CACHE_HOME="},
		"not a full one": {"HOME=", "XDG_CACHE_HOME=rel"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := h.command("version")
			cmd.Env = append(cmd.Env, env...)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Contains(t, string(out), "wisbox ")
		})
	}
	h.do("create", "box")
	h.do("exec", "box", "--", "true")
	holder := holderOf(t, "box", h)
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(holder), "comm"))
	require.NoError(t, err)
	assert.Equal(t, "wisbox\n", string(comm))
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(holder), "environ"))
	require.NoError(t, err)
	assert.Contains(t, string(env), "WISBOX_PROGRAM="+binary(t)+"\x00", "for the programs that it starts again")
	assert.Contains(t, h.do("ssh-config", "box"), "ProxyCommand "+binary(t)+" ssh-proxy")
}
