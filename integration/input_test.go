package integration

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAProgramWithoutInputSearchesTheWorkspace: ripgrep reads its input in place of the workspace if that is a pipe.
func TestAProgramWithoutInputSearchesTheWorkspace(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "sh", "-c", "echo needle >hay")
	const want = "hay:needle"
	search := []string{"exec", "box", "--", "rg", "needle"}
	assert.Contains(t, h.do(search...), want, "/dev/null")
	closed := exec.Command("sh", "-c", `exec "$0" "$@" <&-`)
	closed.Args = append(closed.Args, append([]string{binary(t)}, search...)...)
	closed.Env = h.command().Env
	out, err := closed.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), want, "a closed input")
	typing := h.command(search...)
	p := atTerminal(t, typing, nil)
	p.types("", want)
	require.NoError(t, typing.Wait(), "a terminal from which nobody wanted to pass anything on")
	assert.Contains(t, h.do("call", "box", "shell_execute", `{"commands": ["rg", "needle"]}`), want)
	assert.Contains(t, h.do("call", "box", "shell_execute", `{"script": "readlink /proc/self/fd/0"}`), "/dev/null")
	assert.Contains(t, h.do("call", "box", "evaluate_python", `{"code": "import os; os.readlink('/proc/self/fd/0')"}`), "/dev/null")
	id := h.detached("box", "--", "rg", "needle")
	assert.Contains(t, h.do("logs", "-f", "box", id), want)

	piped := h.command(search...)
	piped.Stdin = strings.NewReader("a needle in the pipe\n")
	out, err = piped.Output()
	require.NoError(t, err)
	assert.Equal(t, "a needle in the pipe\n", string(out), "what is given is passed on")
	typed := h.command("exec", "-i", "box", "--", "sh", "-c", "echo re''ady; read x; echo got $x")
	p = atTerminal(t, typed, nil)
	p.types("", "ready")
	p.types("a line\r", "got a line")
	require.NoError(t, typed.Wait())
	h.do("session", "rm", "box")
}

// TestACommandInTheBackgroundIsNotStopped by the terminal, which stops processes that read it.
func TestACommandInTheBackgroundIsNotStopped(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	shell := exec.Command("bash", "--norc", "-i")
	shell.Env = append(slices.Clip(h.command().Env), "TERM=dumb", "PS1=? ", "W="+binary(t))
	p := atTerminal(t, shell, &pty.Winsize{Rows: 30, Cols: 200})
	p.types("", "? ")
	p.types("set -b; for x in 'exec box' run; do $W $x -- sh -c 'echo d''one' & wait; done; echo bo''th\r", "both")
	p.mu.Lock()
	seen := p.seen.String()
	p.mu.Unlock()
	assert.Equal(t, 2, strings.Count(seen, "done\r\n"), seen)
	assert.NotContains(t, seen, "Stopped")
	p.sends("exit\r")
	_ = shell.Wait()
	h.do("session", "rm", "box")
}

// TestSignalsArePassedOn to a command without a terminal, which may clean up.
func TestSignalsArePassedOn(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	const cleans = `trap 'sleep 0.2; echo cleaned >>log; exit 3' TERM INT HUP; echo ready; while :; do sleep 0.05; done`
	ends := func(cmd *exec.Cmd, sends ...os.Signal) (code int, out, errs string) {
		var stdout, stderr bytes.Buffer
		cmd.Stderr = &stderr
		from, err := cmd.StdoutPipe()
		require.NoError(t, err)
		h.begin(cmd)
		buf := make([]byte, 100)
		for !strings.Contains(stdout.String(), "ready") {
			n, err := from.Read(buf)
			require.NoError(t, err, stderr.String())
			stdout.Write(buf[:n])
		}
		for i, sig := range sends {
			if i > 0 {
				time.Sleep(300 * time.Millisecond) // the same signal at once counts as one
			}
			require.NoError(t, cmd.Process.Signal(sig))
		}
		_, _ = stdout.ReadFrom(from)
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		h.do("exec", "box", "--", "rm", "-f", "log")
		code, _, errs := ends(h.command("exec", "box", "--", "bash", "-c", cleans), sig)
		assert.Equal(t, 3, code, "%s: the code is the program's: %s", sig, errs)
		assert.Equal(t, "cleaned\n", h.do("exec", "box", "--", "cat", "log"), sig)
	}
	code, _, _ := ends(h.command("exec", "box", "--", "sh", "-c", "echo ready; exec sleep 600"), os.Interrupt)
	assert.Equal(t, 130, code, "a program that does nothing about it")
	code, _, _ = ends(h.command("run", "--", "bash", "-c", cleans), syscall.SIGTERM)
	assert.Equal(t, 3, code, "run, too")
	const stubborn = `trap '' TERM INT; echo ready; while :; do sleep 0.05; done`
	code, _, _ = ends(h.command("exec", "box", "--", "bash", "-c", stubborn), os.Interrupt, os.Interrupt)
	assert.Equal(t, 130, code, "a second signal kills")
	code, _, errs := ends(h.command("exec", "box", "--", "bash", "-c", stubborn), syscall.SIGTERM)
	assert.Equal(t, 143, code)
	assert.Contains(t, errs, "the command still ran 10s after TERM and was killed")
	assert.NotContains(t, h.do("exec", "box", "--", "sh", "-c", "cat /proc/[0-9]*/cmdline"), "trap '' TERM")

	h.do("exec", "box", "--", "rm", "-f", "log")
	out, errs, code := command(t, h.cache, "exec", "--timeout", "1s", "box", "--", "bash", "-c", cleans)
	assert.Equal(t, 124, code, "a time limit lets it clean up: %s%s", out, errs)
	assert.Equal(t, "cleaned\n", h.do("exec", "box", "--", "cat", "log"))
	h.do("session", "rm", "box")
}
