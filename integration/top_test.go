package integration

import (
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTopShowsSessionsAndTakesKeys(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("session", "create", "other")
	h.do("call", "other", "shell_execute", `{"commands":["true"]}`)
	cmd := h.command("top", "--delay", "200ms")
	p := atTerminal(t, cmd, &pty.Winsize{Rows: 20, Cols: 140})
	p.types("", "> box ")
	p.types("", "shell_execute ok")
	p.types("\x1b[B", "> other ")
	p.types("s", "$ ")
	p.types("echo in''side; exit\r", "inside")
	p.types("", "> other ")
	p.types("l", "Enter goes back ")
	p.types("\r", "> other ")
	p.types("x", "stop other? its programs end, its files stay: y or n")
	p.types("n", "up/down choose")
	p.types("x", "stop other?")
	h.do("session", "create", "third")
	p.types("", "third")
	p.types("y", "stopped other")
	p.sends("q")
	require.NoError(t, cmd.Wait())
	assert.Contains(t, h.do("stats", "other"), "stopped")
	assert.Contains(t, h.fail("top"), "top needs a terminal; use: wisbox stats, which prints once")
	assert.Contains(t, h.fail("top", "--delay", "0"), "--delay is 0s; it must be 200ms to 1m0s")
	cmd = h.command("top", "--delay", "1m")
	p = atTerminal(t, cmd, &pty.Winsize{Rows: 1, Cols: 1})
	p.types("", "\x1b[J")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	p.types("", "\x1b[?1049l")
	_ = cmd.Wait()
	h.do("session", "rm", "box", "other", "third")
}
