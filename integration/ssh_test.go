package integration

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sshed is a session for OpenSSH's client, with the configuration of wisbox ssh-config.
type sshed struct {
	*home
	config string
}

func (h *home) sshed(session string) *sshed {
	h.t.Helper()
	h.do("session", "create", session)
	s := &sshed{h, filepath.Join(h.t.TempDir(), "config")}
	require.NoError(h.t, os.WriteFile(s.config, []byte(h.do("ssh-config", session)), 0o600))
	return s
}

// client returns a command of one of OpenSSH's programs.
func (s *sshed) client(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	path, err := exec.LookPath(name)
	require.NoError(s.t, err, "make setup installs it")
	return exec.CommandContext(s.t.Context(), path, append([]string{"-F", s.config}, args...)...)
}

// runs runs a client, which must succeed, and returns its output.
func (s *sshed) runs(cmd *exec.Cmd) string {
	s.t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(s.t, err, "%v: %s%s", cmd.Args, out, errs.String())
	return string(out)
}

// TestSSHRunsCommands with the real client: streams, exit codes, a terminal, the log.
func TestSSHRunsCommands(t *testing.T) {
	s := newHome(t).sshed("ssh-commands")
	cmd := s.client("ssh", "ssh-commands.wisbox", "cat; echo oops >&2; exit 7")
	content := make([]byte, 10<<20)
	for i := range content {
		content[i] = byte(rand.Uint32())
	}
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(content), &out, &errs
	var exit *exec.ExitError
	require.True(t, errors.As(cmd.Run(), &exit), errs.String())
	assert.Equal(t, 7, exit.ExitCode())
	assert.True(t, bytes.Equal(content, out.Bytes()), "what went in is %d bytes, what came out %d", len(content), out.Len())
	assert.Equal(t, "oops\n", errs.String(), "and no question about the host key")

	cmd = s.client("ssh", "-T", "ssh-commands.wisbox")
	cmd.Stdin = strings.NewReader("pwd; id -u; echo $FROM_HERE")
	cmd.Args = append([]string{cmd.Args[0], "-o", "SetEnv=FROM_HERE=yes"}, cmd.Args[1:]...)
	assert.Equal(t, "/workspace\n1000\nyes\n", s.runs(cmd))
	assert.Equal(t, "as id says\n", s.runs(s.client("ssh", "ssh-commands.wisbox", `test "$USER $LOGNAME" = "$(id -un) $(id -un)" && echo as id says`)))

	p := atTerminal(t, s.client("ssh", "ssh-commands.wisbox"), &pty.Winsize{Cols: 91, Rows: 33})
	p.types("stty size; echo rea''dy\r", "ready")
	assert.Contains(t, p.seen.String(), "33 91")
	require.NoError(t, pty.Setsize(p.screen, &pty.Winsize{Cols: 120, Rows: 44}))
	p.types("until [ \"$(stty size)\" = '44 120' ]; do :; done; echo resi''zed\r", "resized")

	log := s.do("log", "ssh-commands", "--json")
	assert.Contains(t, log, `"bash","-c","cat; echo oops`)
	assert.Contains(t, log, `"caller":"ssh[`)
}

// TestSSHEndsWithTheReaderOfItsOutput, also programs that ignore SIGPIPE. A program that writes nothing more goes on.
func TestSSHEndsWithTheReaderOfItsOutput(t *testing.T) {
	s := newHome(t).sshed("ssh-reader")
	for _, endless := range []string{"yes", "while :; do echo line; done", `python3 -c "while True: print(1)"`, `trap "" PIPE; yes`, "tail -f /etc/passwd & yes"} {
		ssh := s.client("ssh", "ssh-reader.wisbox", endless)
		cmd := exec.CommandContext(t.Context(), "bash", "-c", `"$@" | head -2; wait`, "bash")
		cmd.Args = append(cmd.Args, ssh.Args...)
		out, err := cmd.Output()
		require.NoError(t, err, endless)
		assert.Equal(t, 2, strings.Count(string(out), "\n"), endless)
	}
	assert.Eventually(t, func() bool {
		return strings.TrimSpace(s.do("exec", "ssh-reader", "--", "sh", "-c", "cat /proc/*/comm | grep -c yes; true")) == "0"
	}, time.Minute, 100*time.Millisecond)
	quiet := s.client("ssh", "ssh-reader.wisbox", "echo begun; sleep 0.5; touch over")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `"$@" | head -1`, "bash")
	cmd.Args = append(cmd.Args, quiet.Args...)
	require.NoError(t, cmd.Run())
	s.do("exec", "ssh-reader", "--", "test", "-e", "over")
}

// TestSSHCopiesFiles with sftp and scp: a tree with odd names in both directions.
func TestSSHCopiesFiles(t *testing.T) {
	s := newHome(t).sshed("ssh-files")
	dir := t.TempDir()
	tree := map[string]string{
		"a": "one\n", "sub/with  blanks 'and' \"quotes\"": "two", "sub/ünï": "", "new\nline": "3", "\xff\xfe": "4",
		"big": strings.Repeat("0123456789abcde\n", 1<<18),
	}
	for name, content := range tree {
		path := filepath.Join(dir, "tree", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/sh\necho ran\n"), 0o755))
	cmd := s.client("sftp", "-b", "-", "ssh-files.wisbox")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(`
put -r tree
get -r tree back
mkdir d
rename tree/a d/a
put run d/a
chmod 750 d/a
ls -l d
-rmdir d
rm d/a
rmdir d
-get nosuch
`)
	said := s.runs(cmd)
	assert.Contains(t, said, "-rwxr-x---")
	for name, content := range tree {
		got, err := os.ReadFile(filepath.Join(dir, "back", name))
		require.NoError(t, err)
		assert.True(t, content == string(got), "%q", name)
	}
	scp := s.client("scp", "run", "tree/big", "ssh-files.wisbox:/tmp/")
	scp.Dir = dir
	s.runs(scp)
	scp = s.client("scp", "tree/sub/ünï", "ssh-files.wisbox:/tmp/big")
	scp.Dir = dir
	s.runs(scp)
	assert.Equal(t, "ran\n0\ntree\n", s.runs(s.client("ssh", "ssh-files.wisbox", "/tmp/run; stat -c %s /tmp/big; ls")))
	scp = s.client("scp", "-p", "ssh-files.wisbox:/tmp/run", "back/ran")
	scp.Dir = dir
	s.runs(scp)
	info, err := os.Stat(filepath.Join(dir, "back", "ran"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
}

// TestSSHForwardsPortsOfTheSession, and of nothing else, with many commands over one connection.
func TestSSHForwardsPortsOfTheSession(t *testing.T) {
	s := newHome(t).sshed("ssh-ports")
	s.do("exec", "-d", "--wait-port", "8000", "ssh-ports", "--", "python3", "-m", "http.server", "8000")
	dir, err := os.MkdirTemp("", "ssh-") // short, for the names of sockets
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	here, control := filepath.Join(dir, "http"), filepath.Join(dir, "control")
	master := s.begin(s.client("ssh", "-M", "-S", control, "-N", "-L", here+":localhost:8000", "ssh-ports.wisbox"))
	require.Eventually(t, func() bool {
		_, err := os.Stat(control)
		return err == nil && s.client("ssh", "-S", control, "-O", "check", "ssh-ports.wisbox").Run() == nil
	}, time.Minute, 10*time.Millisecond)
	status, body := read(t, over(t, "unix", here), "http://localhost/")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "Directory listing")
	first, second := s.client("ssh", "-S", control, "ssh-ports.wisbox", "read x; echo $x"), s.client("ssh", "-S", control, "ssh-ports.wisbox", "echo second")
	waits, err := first.StdinPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	first.Stdout = &out
	require.NoError(t, first.Start())
	assert.Equal(t, "second\n", s.runs(second))
	_, err = waits.Write([]byte("first\n"))
	require.NoError(t, err)
	require.NoError(t, first.Wait())
	assert.Equal(t, "first\n", out.String())

	said, err := s.client("ssh", "-W", "example.org:80", "ssh-ports.wisbox").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(said), "ports of the session itself")
	killed(t, master)
	_, err = net.Dial("unix", here)
	require.Error(t, err)
}

// TestSSHEndsWithItsConnectionAndWithItsSession, and reports why it can't begin.
func TestSSHEndsWithItsConnectionAndWithItsSession(t *testing.T) {
	s := newHome(t).sshed("ssh-ends")
	says := func(cmd *exec.Cmd) string {
		t.Helper()
		said, err := cmd.CombinedOutput()
		require.Error(t, err)
		return string(said)
	}
	cmd := s.begin(s.client("ssh", "ssh-ends.wisbox", "sleep 4321"))
	running := func() bool { return s.client("ssh", "ssh-ends.wisbox", "pgrep -x sleep").Run() == nil }
	require.Eventually(t, running, time.Minute, 10*time.Millisecond)
	killed(t, cmd)
	require.Eventually(t, func() bool { return !running() }, time.Minute, 10*time.Millisecond)
	require.Contains(t, s.do("log", "ssh-ends"), "cancelled")

	if _, said, code := command(t, s.cache, "session", "pause", "ssh-ends"); code == 0 || !strings.Contains(said, "can't pause") { // as if only root could use the freezer
		require.Zero(t, code, said)
		require.Contains(t, says(s.client("ssh", "ssh-ends.wisbox", "true")), "session ssh-ends is paused")
		s.do("session", "resume", "ssh-ends")
	}
	cmd = s.client("ssh", "ssh-ends.wisbox", "echo up; sleep 4321")
	var errs lines
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	s.begin(cmd)
	_, err = out.Read(make([]byte, 3))
	require.NoError(t, err)
	s.do("rm", "ssh-ends")
	require.Error(t, cmd.Wait())
	require.Regexp(t, "wisbox: (closed: |the command was ended, because its session was)", errs.String(), "whatever ssh hears first")
	require.NotContains(t, errs.String(), "the caller cancelled")
	require.Contains(t, says(s.client("ssh", "ssh-ends.wisbox", "true")), `session "ssh-ends" not found`)
}
