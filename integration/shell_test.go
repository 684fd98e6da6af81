package integration

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// interruptible is a script that an interrupt ends. Without a trap, sh loses an interrupt that arrives just as it
// begins its sleep.
const interruptible = `sh -c "trap 'exit 1' INT; echo sta''rted; while :; do sleep 0.1; done"`

func TestShellIsATerminal(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	shell := h.command("shell", "box")
	shell.Env = append(shell.Env, "TERM=xterm")
	p := atTerminal(t, shell, &pty.Winsize{Rows: 33, Cols: 99})
	// Bash loses keys while it takes or leaves the terminal, so each line waits for its prompt.
	p.types("", "$ ")
	p.types("bind 'set enable-bracketed-paste off'; PS1='yes''? '\r", "yes? ")
	p.types("stty size\r", "33 99\r\nyes? ")
	require.NoError(t, pty.Setsize(p.screen, &pty.Winsize{Rows: 44, Cols: 111}))
	p.types("while [ \"$(stty size)\" != '44 111' ]; do sleep 0.1; done; echo re''sized\r", "resized\r\nyes? ")
	p.types("tty -s && echo 'a ter''minal'\r", "a terminal\r\nyes? ")
	p.types(interruptible+"\r", "started\r\n")
	interrupted, edited := "^C", "half\x15whole\r" // the terminal's own line editing
	if env.isolation == sandbox.IsolationGVisor {
		interrupted, edited = "\x03", "whole\r" // gVisor's terminal shows the key as it is, and has no Ctrl-U
	}
	p.types("\x03", interrupted)
	p.types("", "yes? ") // the key went to the program, which is not the shell
	p.types("echo re''ading; read x; echo got $x\r", "reading\r\n")
	p.types(edited, "got whole\r\nyes? ")
	p.sends("exit 7\r")
	var exit *exec.ExitError
	require.ErrorAs(t, shell.Wait(), &exit)
	assert.Equal(t, 7, exit.ExitCode())
	h.do("session", "rm", "box")
}

// TestAShellGoesWithItsTerminal, even without a SIGHUP.
func TestAShellGoesWithItsTerminal(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	screen, tty, err := pty.Open()
	require.NoError(t, err)
	shell := h.command("shell", "box", "--", "sh", "-c", "echo sta''rted; exec sleep 4711")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	h.begin(shell)
	require.NoError(t, tty.Close())
	seen, buf := "", make([]byte, 100)
	for !strings.Contains(seen, "started") { // a remaining reader would keep the terminal open
		n, err := screen.Read(buf)
		require.NoError(t, err, seen)
		seen += string(buf[:n])
	}
	require.NoError(t, screen.Close())
	ended := make(chan struct{})
	go func() {
		_ = shell.Wait() // its terminal is gone
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the shell stays without its terminal")
	}
	assert.Empty(t, h.do("exec", "box", "--", "sh", "-c", "! grep -lzx '471[1]' /proc/[0-9]*/cmdline"))
	h.do("session", "rm", "box")
}
