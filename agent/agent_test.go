package agent_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/agenttest"
	"github.com/wisbox/wisbox/sandbox"
)

// fixture is an agent on this machine, in a process namespace of its own where
// we may make one, so that what tests do to processes stays there.
type fixture struct {
	*agent.Conn
	dir string // the workspace
	cmd *agenttest.Agent
}

func start(t testing.TB) *fixture {
	t.Helper()
	dir := workspace(t)
	var wrap []string
	if os.Geteuid() == 0 {
		wrap = []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", `"$@"; exit $?`, "sh"}
	}
	a := agenttest.Start(t, dir, wrap...)
	return &fixture{dial(t, a), dir, a}
}

func dial(t testing.TB, a *agenttest.Agent) *agent.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := agent.Dial(ctx, a.Connect(t))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
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

// patiently tries something with a time limit, and with a longer one each time until it
// came to what it tests: a busy machine may start no program within the first.
func patiently(t *testing.T, limit time.Duration, try func(limit time.Duration) (did bool)) {
	t.Helper()
	for ; !try(limit); limit *= 2 {
		require.Less(t, limit, 30*time.Second, "it never came to what is tested")
	}
}

// output is the output and the end of a program.
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
	return f.run(t, sandbox.Cmd{Argv: []string{"bash", "-c", script}, Timeout: time.Minute})
}

func TestRunTellsStreamsAndExit(t *testing.T) {
	f := start(t)
	got := f.sh(t, "echo out; echo err >&2; exit 3")
	require.Equal(t, "out\n", got.out)
	require.Equal(t, "err\n", got.err)
	require.Equal(t, sandbox.StatusExited, got.Status)
	require.Equal(t, 3, got.ExitCode)
	require.EqualValues(t, 4, got.Stdout.Bytes)
	require.Positive(t, got.Duration)
}

func TestExitCodesOfWhatCannotRun(t *testing.T) {
	f := start(t)
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
	f := start(t)
	t.Run("signal", func(t *testing.T) {
		got := f.sh(t, "kill -SEGV $$")
		require.Equal(t, sandbox.StatusSignaled, got.Status)
		require.Equal(t, 139, got.ExitCode)
		require.Equal(t, "SEGV", got.Signal)
	})
	t.Run("timeout", func(t *testing.T) {
		patiently(t, 300*time.Millisecond, func(limit time.Duration) (did bool) {
			begin := time.Now()
			got := f.run(t, sandbox.Cmd{Argv: []string{"sh", "-c", "echo a; : >said; trap '' TERM INT; sleep 600 & sleep 600"}, Timeout: limit})
			require.Equal(t, sandbox.StatusTimedOut, got.Status)
			require.Equal(t, 124, got.ExitCode)
			require.Less(t, time.Since(begin), limit+30*time.Second)
			if _, err := os.Stat(filepath.Join(f.dir, "said")); err != nil {
				return false
			}
			require.Equal(t, "a\n", got.out)
			return true
		})
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
	f := start(t)
	big := strings.Repeat("0123456789abcdef", 200_000)
	got := f.run(t, sandbox.Cmd{Argv: []string{"cat"}, Stdin: strings.NewReader(big)})
	require.True(t, got.out == big, "%d bytes came back", len(got.out))
	got = f.run(t, sandbox.Cmd{Argv: []string{"true"}, Stdin: strings.NewReader(big)})
	require.Equal(t, 0, got.ExitCode)
	require.Equal(t, "", f.run(t, sandbox.Cmd{Argv: []string{"cat"}}).out)
}

func TestBackgroundChildrenDoNotHoldTheCall(t *testing.T) {
	f := start(t)
	begin := time.Now()
	got := f.sh(t, "(setsid nohup sh -c 'trap \"\" TERM; sleep 4711' &) ; sleep 4711 & echo started")
	require.Equal(t, "started\n", got.out)
	require.Less(t, time.Since(begin), 30*time.Second)
	require.Equal(t, "0\n", f.sh(t, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c 'slee[p] 4711' ").out)
}

func TestProgramsHaveNoRights(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only uid 0 can give up uid 0")
	}
	f := start(t)
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
`, strings.SplitN(got.out, "LANG=", 2)[0])
	require.Contains(t, got.out, "LANG=C.UTF-8\n")
	require.NotContains(t, got.out, "HOME=", "the host names it")
}

func TestDirStaysInTheWorkspace(t *testing.T) {
	f := start(t)
	require.NoError(t, os.Mkdir(f.dir+"/src", 0o755))
	require.NoError(t, os.Symlink("/etc", f.dir+"/out"))
	require.NoError(t, os.Symlink("src", f.dir+"/in"))
	require.Equal(t, f.dir+"/src\n", f.run(t, sandbox.Cmd{Argv: []string{"pwd"}, Dir: "in"}).out)
	require.Equal(t, "/etc\n", f.run(t, sandbox.Cmd{Argv: []string{"pwd"}, Dir: "/etc"}).out, "an absolute one is the sandbox's")
	if os.Geteuid() == 0 {
		_, err := f.Run(t.Context(), sandbox.Cmd{Argv: []string{"pwd"}, Dir: "/root"})
		require.ErrorIs(t, err, fs.ErrPermission)
	}
	for dir, kind := range map[string]string{"out": "escape", "none": "not_found", "..": "escape", "/nowhere": "not_found"} {
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
	f := start(t)
	got := f.sh(t, "echo x >/dev/stderr; echo y | tee /dev/stdout")
	require.Equal(t, "x\n", got.err)
	require.Equal(t, "y\ny\n", got.out)
}

func TestCaptureKeepsHeadAndTail(t *testing.T) {
	f := start(t)
	got := f.run(t, sandbox.Cmd{Argv: []string{"seq", "1", "1000000"}, Capture: &sandbox.Capture{Forward: 10, Tail: 15}})
	require.Equal(t, "1\n2\n3\n4\n5\n", got.out)
	require.Equal(t, "999999\n1000000\n", string(got.Stdout.Tail))
	require.EqualValues(t, 6888896, got.Stdout.Bytes)
}

func TestTerminal(t *testing.T) {
	f := start(t)
	var out bytes.Buffer
	p, err := f.Start(context.Background(), sandbox.Cmd{
		Argv: []string{"bash", "-c", "until [ \"$(stty size)\" = '50 132' ]; do sleep 0.01; done; stty size; read line; echo $line > $(tty)"},
		TTY:  &sandbox.WinSize{Cols: 80, Rows: 24}, Stdin: strings.NewReader("hello\n"), Stdout: &out, Timeout: time.Minute,
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
	f := start(t)
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
	f := start(t)
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

func TestSignals(t *testing.T) {
	f := start(t)
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
	f := start(t)
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

// TestTimeLimitsOfASuspendedAgentStandStill until it resumes, or who suspended it is gone.
func TestTimeLimitsOfASuspendedAgentStandStill(t *testing.T) {
	f := start(t)
	for name, goOn := range map[string]func(*fixture){
		"resumed": func(by *fixture) { require.NoError(t, by.Resume(t.Context())) },
		"lost":    func(by *fixture) { require.NoError(t, by.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			patiently(t, 300*time.Millisecond, func(limit time.Duration) (did bool) {
				by := &fixture{dial(t, f.cmd), f.dir, f.cmd}
				defer by.Close()
				p, err := f.Start(t.Context(), sandbox.Cmd{Argv: []string{"sleep", "600"}, Timeout: limit})
				require.NoError(t, err)
				require.NoError(t, by.Suspend(t.Context()))
				short, cancel := context.WithTimeout(t.Context(), 2*limit)
				defer cancel()
				if _, err = p.Wait(short); err == nil { // its time was over before it was suspended
					return false
				}
				require.ErrorIs(t, err, context.DeadlineExceeded, "its time limit doesn't run")
				goOn(by)
				res, err := p.Wait(t.Context())
				require.NoError(t, err)
				require.Equal(t, sandbox.StatusTimedOut, res.Status)
				require.Greater(t, res.Duration, 2*limit)
				return true
			})
		})
	}
	require.NoError(t, f.Err())
}

// TestAnAgentOfFewProgramsHasTheOthersWait, until one has ended.
func TestAnAgentOfFewProgramsHasTheOthersWait(t *testing.T) {
	dir := workspace(t)
	f := &fixture{Conn: dial(t, agenttest.StartFew(t, dir, 2)), dir: dir}
	var calls sync.WaitGroup
	for range 24 {
		calls.Go(func() {
			got := f.run(t, sandbox.Cmd{Argv: []string{"sh", "-c", "mkdir run.$$; ls -d run.* | wc -l; rmdir run.$$"}})
			assert.Equal(t, sandbox.StatusExited, got.Status)
			assert.Regexp(t, "^[12]\n$", got.out)
		})
	}
	calls.Wait()
}

func TestAMissingInterpreterIsNamed(t *testing.T) {
	f := start(t)
	f.sh(t, `printf '#!/bin/sh\r\necho hi\r\n' >crlf; printf '#!/bin/sh -e\r\necho hi\r\n' >option; printf '#! /no/such/one -x\n' >gone
		printf '#!\t/no/such/two\targ' >cut; printf 'text\n' >text; printf '#!/bin/sh\necho fine\n' >fine; chmod +x crlf option gone cut text fine; mkfifo pipe; chmod +x pipe`)
	for script, want := range map[string]string{
		"./crlf": "./crlf: the interpreter \"/bin/sh\\r\" of its first line was not found: its lines end in CRLF; convert them with sed -i 's/\\r$//'\n",
		"./gone": "./gone: the interpreter \"/no/such/one\" of its first line was not found\n",
		"./cut":  "./cut: the interpreter \"/no/such/two\" of its first line was not found\n",
		"./none": "./none: no such file or directory\n",
		"none":   "none: command not found\n",
	} {
		o := f.run(t, sandbox.Cmd{Argv: []string{script}})
		assert.Equal(t, sandbox.ExitNotFound, o.ExitCode, script)
		assert.Equal(t, want, o.err, script)
	}
	f.sh(t, "mkdir bin; mv crlf bin/found")
	o := f.run(t, sandbox.Cmd{Argv: []string{"found"}, Env: []string{"PATH=" + f.dir + "/bin"}})
	assert.Contains(t, o.err, "found: the interpreter", "also along PATH")
	assert.Equal(t, "fine\n", f.run(t, sandbox.Cmd{Argv: []string{"./fine"}}).out)
	assert.Equal(t, sandbox.ExitNotExecutable, f.run(t, sandbox.Cmd{Argv: []string{"./pipe"}}).ExitCode)
}
