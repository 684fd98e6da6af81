package integration

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

func TestShellIsATerminal(t *testing.T) {
	need(t)
	bin, environ := binary(t), append(os.Environ(), "WISBOX_CACHE="+t.TempDir(), "TERM=xterm")
	wisbox := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = environ
		return cmd
	}
	require.NoError(t, wisbox("session", "create", "box").Run())
	defer func() { assert.NoError(t, wisbox("session", "rm", "box").Run()) }()

	shell := wisbox("shell", "box")
	screen, err := pty.StartWithSize(shell, &pty.Winsize{Rows: 33, Cols: 99})
	require.NoError(t, err)
	defer screen.Close()
	p := &typist{t: t, keys: screen}
	go func() { _, _ = p.readAll() }()
	p.types("PS1=; stty size\r", "33 99\r\n")
	require.NoError(t, pty.Setsize(screen, &pty.Winsize{Rows: 44, Cols: 111}))
	p.types("while [ \"$(stty size)\" != '44 111' ]; do sleep 0.1; done; echo re''sized\r", "resized\r\n")
	p.types("tty -s && echo 'a ter''minal'\r", "a terminal\r\n")
	p.types("sleep 60; echo sl''ept $?\r", "\n")
	if env.isolation == sandbox.IsolationGVisor {
		p.types("\x03", "\x03") // shown as it is
	} else {
		p.types("\x03", "^C")
	}
	p.types("echo af''ter\r", "after\r\n") // the keys go to the program, which is not the shell
	p.types("sleep 0.5\r", "\n")
	p.types("read x; echo got $x\rhalf\x15whole\r", "got whole\r\n") // the terminal's own line editing
	_, err = screen.WriteString("exit 7\r")
	require.NoError(t, err)
	var exit *exec.ExitError
	require.ErrorAs(t, shell.Wait(), &exit)
	assert.Equal(t, 7, exit.ExitCode())
}

// TestAShellGoesWithItsTerminal: also where nobody sends it SIGHUP.
func TestAShellGoesWithItsTerminal(t *testing.T) {
	need(t)
	bin, environ := binary(t), append(os.Environ(), "WISBOX_CACHE="+t.TempDir())
	wisbox := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = environ
		return cmd
	}
	require.NoError(t, wisbox("session", "create", "box").Run())
	defer func() { assert.NoError(t, wisbox("session", "rm", "box").Run()) }()

	screen, tty, err := pty.Open()
	require.NoError(t, err)
	shell := wisbox("shell", "box", "--", "sh", "-c", "echo sta''rted; exec sleep 4711")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	require.NoError(t, shell.Start())
	require.NoError(t, tty.Close())
	seen, buf := "", make([]byte, 100)
	for !strings.Contains(seen, "started") { // no reader may be left: it would keep the terminal open
		n, err := screen.Read(buf)
		require.NoError(t, err, seen)
		seen += string(buf[:n])
	}
	require.NoError(t, screen.Close())
	ended := make(chan error, 1)
	go func() { ended <- shell.Wait() }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		_ = shell.Process.Kill()
		t.Fatal("the shell stays without its terminal")
	}
	out, err := wisbox("exec", "box", "--", "sh", "-c", "! grep -lzx '471[1]' /proc/[0-9]*/cmdline").CombinedOutput()
	assert.NoError(t, err, "%s", out)
}
