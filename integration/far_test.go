package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// farHome is a client whose sessions are on another machine: an OpenSSH server on the loopback interface with its own
// state root.
type farHome struct {
	*home        // of the other machine
	dir   string // of the client
	env   []string
}

func newFarHome(t *testing.T) *farHome {
	t.Helper()
	f := &farHome{home: newHome(t), dir: t.TempDir()}
	me, err := user.Current()
	require.NoError(t, err)
	port := freePort(t)
	for _, key := range []string{"key", "host"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(f.dir, key)).CombinedOutput()
		require.NoError(t, err, "make setup installs it: %s", out)
	}
	host := f.read("host.pub")
	f.write("known", fmt.Sprintf("[127.0.0.1]:%d %s", port, host))
	f.write("authorized", f.read("key.pub"))
	f.write("client", "Host *\n IdentityFile "+f.dir+"/key\n IdentitiesOnly yes\n UserKnownHostsFile "+f.dir+"/known\n BatchMode yes\n")
	f.write("server", fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\nPidFile none\nStrictModes no\nUsePAM no\nSetEnv WISBOX_CACHE=%s WISBOX_RUNSC=%s\n",
		port, f.dir, f.dir, f.cache, os.Getenv("WISBOX_RUNSC")))
	if me.Uid == "0" {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	}
	sshd := exec.Command("/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(f.dir, "server"))
	f.begin(sshd)
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, 10*time.Second, time.Millisecond)
	f.env = append(os.Environ(), "WISBOX_CACHE="+f.dir+"/cache", "XDG_CONFIG_HOME="+f.dir, "WISBOX_SSH=ssh -F "+f.dir+"/client", "WISBOX_REMOTE=")
	f.far(nil, 0, "remote", "add", "box", fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", me.Username, port, binary(t)))
	f.far(nil, 0, "remote", "use", "box")
	return f
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (f *farHome) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(filepath.Join(f.dir, name)), 0o700))
	require.NoError(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600))
}

func (f *farHome) read(name string) string {
	f.t.Helper()
	raw, err := os.ReadFile(filepath.Join(f.dir, name))
	require.NoError(f.t, err)
	return string(raw)
}

// client returns a command of the client.
func (f *farHome) client(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.t.Context(), binary(f.t), args...)
	cmd.Env, cmd.Dir = f.env, f.dir
	return cmd
}

// far runs a command that must exit with the given code, and returns its stdout and stderr.
func (f *farHome) far(stdin io.Reader, code int, args ...string) (string, string) {
	f.t.Helper()
	cmd := f.client(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errs
	_ = cmd.Run()
	require.Equal(f.t, code, cmd.ProcessState.ExitCode(), "%v: %s", args, errs.String())
	return out.String(), errs.String()
}

func (f *farHome) ok(args ...string) string {
	f.t.Helper()
	out, _ := f.far(nil, 0, args...)
	return out
}

// TestAFarSession uses a session over OpenSSH like a local one: files are copied in and out, programs have streams, a
// terminal, signals and exit codes, and processes stay.
func TestAFarSession(t *testing.T) {
	hosttest.Slow(t)
	f := newFarHome(t)
	f.write("src/a", "one\n")
	f.write("src/sub/b", "two\n")
	f.ok("session", "create", "box", "--mount", "src")
	assert.Equal(t, []string{"box"}, f.sessions())
	assert.NoDirExists(t, filepath.Join(f.dir, "cache", "sessions"))

	big := strings.Repeat("0123456789abcdef", 1<<18) // 4 MiB
	out, _ := f.far(strings.NewReader(big), 3, "exec", "-i", "box", "--", "sh", "-c", "cat a; cat; exit 3")
	assert.Equal(t, "one\n"+big, out)
	_, errs := f.far(nil, 127, "exec", "box", "--", "nosuch")
	assert.Equal(t, "nosuch: command not found\n", errs)
	_, _ = f.far(nil, 124, "exec", "--timeout", "300ms", "box", "--", "sleep", "60")

	p := atTerminal(t, f.client("shell", "box"), &pty.Winsize{Cols: 91, Rows: 33})
	p.types("stty size; echo rea''dy\r", "ready")
	assert.Contains(t, p.seen.String(), "33 91")
	require.NoError(t, pty.Setsize(p.screen, &pty.Winsize{Cols: 120, Rows: 44}))
	p.types("until [ \"$(stty size)\" = '44 120' ]; do :; done; echo resi''zed\r", "resized")

	id := strings.TrimSpace(f.ok("exec", "--detach", "-i", "box", "--", "sh", "-c", "echo begun; read x; echo got $x; sleep 600"))
	assert.Contains(t, f.ok("ps", "box"), id)
	logs := f.client("logs", "-f", "box", id)
	followed, err := logs.StdoutPipe()
	require.NoError(t, err)
	f.begin(logs)
	line := make([]byte, 6)
	_, err = io.ReadFull(followed, line)
	require.NoError(t, err)
	assert.Equal(t, "begun\n", string(line))
	f.ok("call", "box", "process_write", `{"process_id":"`+id+`","data":"in\n"}`)
	line = make([]byte, 7)
	_, err = io.ReadFull(followed, line)
	require.NoError(t, err)
	assert.Equal(t, "got in\n", string(line))
	f.ok("kill", "box", id)
	_, err = io.ReadAll(followed)
	require.NoError(t, err, "it ends with the process")

	assert.Equal(t, "42\n", f.ok("eval", "python", "--session", "box", "print(6 * 7)"))
	f.ok("exec", "box", "--", "sh", "-c", "echo more >> a; rm sub/b; echo new > c")
	f.ok("exec", "box", "--", "sh", "-c", "echo wrong > c")
	f.ok("undo", "box")
	f.ok("apply", "box")
	assert.Equal(t, "one\nmore\n", f.read("src/a"))
	assert.Equal(t, "new\n", f.read("src/c"))
	assert.NoFileExists(t, filepath.Join(f.dir, "src/sub/b"))
	f.ok("session", "save", "box", "box.tar")
	f.ok("session", "load", "box.tar", "twin")
	assert.Equal(t, "new\n", f.ok("exec", "twin", "--", "cat", "c"))
	assert.Equal(t, "ephemeral\n", f.ok("run", "--", "echo", "ephemeral"))
	assert.Equal(t, []string{"box", "twin"}, f.sessions(), "an ephemeral one goes with its client")
	f.ok("rm", "box", "twin")
	assert.Empty(t, f.sessions())
}

// TestAPortOfAFarSession: the port's bytes go over the connection.
func TestAPortOfAFarSession(t *testing.T) {
	hosttest.Slow(t)
	f := newFarHome(t)
	f.write("src/index.html", strings.Repeat("0123456789", 100_000))
	f.ok("session", "create", "box", "--mount", "src")
	f.ok("exec", "--detach", "--wait-port", "8000", "box", "--", "python3", "-m", "http.server", "8000")
	port := freePort(t)
	cmd := f.client("port", "--raw", "--tcp", fmt.Sprint(port), "box", "8000")
	cmd.Stderr = os.Stderr
	f.begin(cmd)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		res, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/index.html", port))
		if !assert.NoError(c, err) {
			return
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		assert.NoError(c, err)
		assert.Len(c, body, 1_000_000)
	}, 30*time.Second, 10*time.Millisecond)
}

// TestAFarConnectionThatBreaks ends its client's programs, and nothing else.
func TestAFarConnectionThatBreaks(t *testing.T) {
	hosttest.Slow(t)
	f := newFarHome(t)
	f.ok("session", "create", "box")
	id := strings.TrimSpace(f.ok("exec", "--detach", "box", "--", "sleep", "600"))
	cmd := f.client("exec", "box", "--", "sh", "-c", "echo begun; sleep 600")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	f.begin(cmd)
	_, err = io.ReadFull(out, make([]byte, 6))
	require.NoError(t, err)
	pids, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	require.NoError(t, err)
	kill := exec.Command("kill", append([]string{"-9"}, strings.Fields(allChildren(t, cmd.Process.Pid, string(pids)))...)...)
	require.NoError(t, kill.Run())
	_ = cmd.Wait()
	assert.Equal(t, 125, cmd.ProcessState.ExitCode())
	assert.Contains(t, errs.String(), "the connection to the other machine broke during the call")
	assert.Contains(t, f.ok("ps", "box"), id)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, 1, strings.Count(f.ok("exec", "box", "--", "ps", "ax"), "sleep 600"), "what the broken one ran is ended")
	}, 20*time.Second, 50*time.Millisecond)
}

// allChildren returns the child processes of all threads of a process.
func allChildren(t *testing.T, pid int, first string) string {
	t.Helper()
	all := first
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	require.NoError(t, err)
	for _, task := range tasks {
		raw, err := os.ReadFile(task)
		if err == nil && string(raw) != first {
			all += " " + string(raw)
		}
	}
	return all
}

// TestAFarMachineThatRefuses: the errors have the reasons.
func TestAFarMachineThatRefuses(t *testing.T) {
	f := newFarHome(t)
	_, errs := f.far(nil, 1, "--remote", fmt.Sprintf("ssh://127.0.0.1:%d", freePort(t)), "ls")
	assert.Contains(t, errs, "Connection refused")
	_, errs = f.far(nil, 1, "--remote", "ssh://no-such-host.invalid", "ls")
	assert.Contains(t, errs, "ssh doesn't reach no-such-host.invalid: ")
	address := f.ok("--json", "remote", "list")
	_, rest, _ := strings.Cut(address, "ssh://")
	host, _, _ := strings.Cut(rest, "/")
	_, errs = f.far(nil, 1, "--remote", "ssh://"+host+"/usr/bin/no-such-wisbox", "ls")
	assert.Contains(t, errs, "wisbox was not found on ")
	_, errs = f.far(nil, 1, "--remote", "ssh://nobody@"+host[strings.Index(host, "@")+1:]+binary(t), "ls")
	assert.Contains(t, errs, "Permission denied")
	f.write("known", "")
	_, errs = f.far(nil, 1, "ls")
	assert.Contains(t, errs, "Host key verification failed")
}
