package agent_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// pipes joins a process's stdin and stdout to one stream.
type pipes struct {
	io.Reader
	io.WriteCloser
	out io.Closer
}

func (p pipes) Close() error {
	p.WriteCloser.Close()
	return p.out.Close()
}

// fixture is an agent on this machine, in a process namespace of its own where
// we may make one, so that what tests do to processes stays there.
type fixture struct {
	*agent.Conn
	dir string // the workspace
	cmd *exec.Cmd
}

func start(t testing.TB, opts agent.Options) *fixture {
	t.Helper()
	dir := workspace(t)
	argv := agent.Command()
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		argv[0] = "/usr/bin/python3" // one that uid 1000 can read, too
	}
	if os.Geteuid() == 0 {
		argv = append([]string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", `"$@"; exit $?`, "sh"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	opts.Workspace = dir
	if opts.PID == nil {
		opts.PID = func(_ context.Context, hello agent.Hello) (int, error) {
			return descendant(t, cmd.Process.Pid, hello.PID), nil
		}
	}
	conn, err := agent.Dial(ctx, pipes{stdout, stdin, stdout}, &opts)
	require.NoError(t, err)
	t.Cleanup(func() {
		conn.Close()
		_ = cmd.Wait()
	})
	return &fixture{conn, dir, cmd}
}

// descendant is the process below another that its namespace numbers so.
func descendant(t testing.TB, pid, inside int) int {
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(t, err)
		name, numbers, _ := strings.Cut(string(status), "\nNSpid:")
		numbers, _, _ = strings.Cut(numbers, "\n")
		if strings.HasPrefix(name, "Name:\tpython") && strings.HasSuffix(numbers, "\t"+strconv.Itoa(inside)) {
			return pid
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		require.NoError(t, err)
		_, err = fmt.Sscan(string(children), &pid)
		require.NoError(t, err)
	}
}

// workspace makes a directory that uid 1000 owns and can reach.
func workspace(t testing.TB) string {
	dir, err := os.MkdirTemp("/tmp", "wisbox-agent-") // others can't reach t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(dir, sandbox.UserID, sandbox.GroupID))
	}
	return dir
}

// output is what a program wrote and how it ended.
type output struct {
	sandbox.Result
	out, err string
}

func (f *fixture) run(t testing.TB, cmd sandbox.Cmd) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	result, err := f.Run(context.Background(), cmd)
	require.NoError(t, err)
	return output{result, stdout.String(), stderr.String()}
}

func (f *fixture) sh(t testing.TB, script string) output {
	t.Helper()
	return f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", script}, Timeout: 20 * time.Second})
}

func TestRunTellsStreamsAndExit(t *testing.T) {
	f := start(t, agent.Options{})
	got := f.sh(t, "echo out; echo err >&2; exit 3")
	require.Equal(t, "out\n", got.out)
	require.Equal(t, "err\n", got.err)
	require.Equal(t, sandbox.StatusExited, got.Status)
	require.Equal(t, 3, got.ExitCode)
	require.EqualValues(t, 4, got.Stdout.Bytes)
	require.Positive(t, got.Duration)
}

func TestExitCodesOfWhatCannotRun(t *testing.T) {
	f := start(t, agent.Options{})
	require.NoError(t, os.WriteFile(f.dir+"/plain", []byte("hi"), 0o644))
	for _, c := range []struct {
		argv string
		code int
		text string
	}{
		{"nosuchprogram", 127, "nosuchprogram: command not found\n"},
		{"./plain", 126, "./plain: permission denied\n"},
		{"./none", 127, "./none: no such file or directory\n"},
		{"", 127, "'': command not found\n"},
	} {
		got := f.run(t, sandbox.Cmd{Argv: []string{c.argv}})
		require.Equal(t, c.code, got.ExitCode, c.argv)
		require.Equal(t, c.text, got.err)
	}
}

func TestStatuses(t *testing.T) {
	f := start(t, agent.Options{})
	t.Run("signal", func(t *testing.T) {
		got := f.sh(t, "kill -SEGV $$")
		require.Equal(t, sandbox.StatusSignaled, got.Status)
		require.Equal(t, 139, got.ExitCode)
		require.Equal(t, "SEGV", got.Signal)
	})
	t.Run("timeout", func(t *testing.T) {
		begin := time.Now()
		got := f.run(t, sandbox.Cmd{Argv: []string{"sh", "-c", "echo a; trap '' TERM INT; sleep 60 & sleep 60"}, Timeout: 300 * time.Millisecond})
		require.Equal(t, sandbox.StatusTimedOut, got.Status)
		require.Equal(t, 124, got.ExitCode)
		require.Equal(t, "a\n", got.out)
		require.Less(t, time.Since(begin), 20*time.Second)
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		stdout, w := io.Pipe()
		go func() {
			_, _ = stdout.Read(make([]byte, 10))
			cancel()
		}()
		got, err := f.Run(ctx, sandbox.Cmd{Argv: []string{"sh", "-c", "echo up; sleep 60"}, Stdout: w})
		require.NoError(t, err)
		require.Equal(t, sandbox.StatusCancelled, got.Status)
		require.Equal(t, 137, got.ExitCode)
	})
}

func TestStdin(t *testing.T) {
	f := start(t, agent.Options{})
	big := strings.Repeat("0123456789abcdef", 200_000)
	got := f.run(t, sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(big)})
	require.True(t, got.out == big, "%d bytes came back", len(got.out))
	got = f.run(t, sandbox.Cmd{Argv: []string{"true"}, Stdin: strings.NewReader(big)})
	require.Equal(t, 0, got.ExitCode)
	require.Equal(t, "", f.run(t, sandbox.Cmd{Argv: []string{"cat"}}).out)
}

func TestBackgroundChildrenDoNotHoldTheCall(t *testing.T) {
	f := start(t, agent.Options{})
	begin := time.Now()
	got := f.sh(t, "(setsid nohup sh -c 'trap \"\" TERM; sleep 4711' &) ; sleep 4711 & echo started")
	require.Equal(t, "started\n", got.out)
	require.Less(t, time.Since(begin), 20*time.Second)
	require.Equal(t, "0\n", f.sh(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 4711' ").out)
}

func TestProgramsHaveNoRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only uid 0 can give up uid 0")
	}
	f := start(t, agent.Options{})
	got := f.sh(t, "id -u; id -g; id -G; grep -E '^(Cap|NoNew)' /proc/self/status; cat /proc/self/oom_score_adj; nice; ls /proc/self/fd; umask; env | sort")
	require.Equal(t, `1000
1000
1000
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
1000
10
0
1
2
3
0022
`, got.out[:strings.Index(got.out, "HOME=")])
	require.Contains(t, got.out, "HOME=/tmp/home\nLANG=C.UTF-8\n")
}

func TestDirStaysInTheWorkspace(t *testing.T) {
	f := start(t, agent.Options{})
	require.NoError(t, os.Mkdir(f.dir+"/src", 0o755))
	require.NoError(t, os.Symlink("/etc", f.dir+"/out"))
	require.NoError(t, os.Symlink("src", f.dir+"/in"))
	require.Equal(t, f.dir+"/src\n", f.run(t, sandbox.Cmd{Argv: []string{"pwd"}, Dir: "in"}).out)
	for dir, kind := range map[string]string{"out": "escape", "none": "not_found", "..": "escape", "/etc": "escape"} {
		_, err := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: dir})
		var started *agent.StartError
		require.ErrorAs(t, err, &started, dir)
		require.ErrorIs(t, err, sandbox.ErrInvalid)
		require.Equal(t, kind, started.Kind, dir)
		require.ErrorContains(t, err, "cwd can't be entered: ")
		_, err = f.Start(context.Background(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: dir})
		require.ErrorAs(t, err, &started, dir)
	}
}

func TestStreamsCanBeOpenedAgain(t *testing.T) {
	f := start(t, agent.Options{})
	got := f.sh(t, "echo x >/dev/stderr; echo y | tee /dev/stdout")
	require.Equal(t, "x\n", got.err)
	require.Equal(t, "y\ny\n", got.out)
}

func TestCaptureKeepsHeadAndTail(t *testing.T) {
	f := start(t, agent.Options{})
	got := f.run(t, sandbox.Cmd{Argv: []string{"seq", "1", "1000000"}, Capture: &sandbox.Capture{Forward: 10, Tail: 15}})
	require.Equal(t, "1\n2\n3\n4\n5\n", got.out)
	require.Equal(t, "999999\n1000000\n", string(got.Stdout.Tail))
	require.EqualValues(t, 6888896, got.Stdout.Bytes)
}

func TestTerminal(t *testing.T) {
	f := start(t, agent.Options{})
	var out bytes.Buffer
	p, err := f.Start(context.Background(), sandbox.Cmd{
		Argv: []string{"bash", "-c", "stty size; read line; stty size; echo $line > $(tty)"},
		TTY:  &sandbox.WinSize{Cols: 80, Rows: 24}, Stdin: strings.NewReader("hello\n"), Stdout: &out,
	})
	require.NoError(t, err)
	require.NoError(t, p.Resize(sandbox.WinSize{Cols: 132, Rows: 50}))
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, 0, got.ExitCode)
	require.Contains(t, out.String(), "50 132")
	require.Contains(t, out.String(), "hello\r\nhello\r\n"[7:])
}

func TestControlIsAPrivateChannel(t *testing.T) {
	f := start(t, agent.Options{})
	var ctl bytes.Buffer
	got := f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", "cat <&3 >&4; echo out"}, Control: &sandbox.Control{In: strings.NewReader("secret"), Out: &ctl}})
	require.Equal(t, "out\n", got.out)
	require.Equal(t, "secret", ctl.String())
}

const echoSource = `
import os, sys
def main(inp, out):
    text = inp.read()
    print("uid", os.getuid(), os.getcwd(), os.environ["K"])
    out.write(text.upper())
    if text == b"raise":
        raise ValueError("no")
`

func TestPythonProgram(t *testing.T) {
	f := start(t, agent.Options{})
	call := func(in string) (output, string) {
		var ctl bytes.Buffer
		got := f.run(t, sandbox.Cmd{
			Python: &sandbox.PythonProgram{Name: "echo", Source: echoSource}, Env: []string{"K=v"},
			Control: &sandbox.Control{In: strings.NewReader(in), Out: &ctl},
		})
		return got, ctl.String()
	}
	for range 3 {
		got, ctl := call("abc")
		require.Equal(t, "ABC", ctl)
		require.Equal(t, 0, got.ExitCode, got.err)
		require.Contains(t, got.out, f.dir+" v\n")
	}
	got, _ := call("raise")
	require.Equal(t, 1, got.ExitCode, got.err)
	require.Contains(t, got.err, "ValueError: no")
	_, err := f.Run(context.Background(), sandbox.Cmd{Python: &sandbox.PythonProgram{Name: "bad", Source: "import nosuchmodule"}})
	require.ErrorIs(t, err, sandbox.ErrUnsupported)
	require.ErrorContains(t, err, "nosuchmodule")
}

func TestOnceServesOneCommand(t *testing.T) {
	f := start(t, agent.Options{Once: true})
	require.Equal(t, "hi\n", f.sh(t, "echo hi; sleep 4712 &").out)
	<-f.Done()
	require.ErrorIs(t, f.Err(), sandbox.ErrLost)
}

func TestSignals(t *testing.T) {
	f := start(t, agent.Options{})
	p, err := f.Start(context.Background(), sandbox.Cmd{Argv: []string{"sleep", "60"}})
	require.NoError(t, err)
	require.ErrorIs(t, p.Signal("NOSUCH"), sandbox.ErrInvalid)
	require.NoError(t, p.Signal("TERM"))
	got, err := p.Wait(context.Background())
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusSignaled, got.Status)
	require.Equal(t, "TERM", got.Signal)
	require.Equal(t, 128+int(unix.SIGTERM), got.ExitCode)
}

func TestLargeRequests(t *testing.T) {
	f := start(t, agent.Options{})
	argv := []string{"sh", "-c", "echo $# ${#BIG}; printf '%s' \"$1\" | od -An -tx1", "sh", "\xff\xfe"}
	for range 5000 {
		argv = append(argv, strings.Repeat("x", 100))
	}
	got := f.run(t, sandbox.Cmd{Argv: argv, Env: []string{"BIG=" + strings.Repeat("y", 100_000)}})
	require.Equal(t, "5001 100000\n ff fe\n", got.out)
	_, err := f.Run(context.Background(), sandbox.Cmd{Argv: []string{"echo", strings.Repeat("x", 2<<20)}})
	require.ErrorIs(t, err, sandbox.ErrInvalid)
	got = f.run(t, sandbox.Cmd{Argv: []string{"echo", strings.Repeat("x", 200_000)}})
	require.Equal(t, 126, got.ExitCode, got.err)
}
