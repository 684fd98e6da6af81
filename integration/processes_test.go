package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// detached starts a process of a session and returns its ID.
func (h *home) detached(args ...string) string {
	h.t.Helper()
	return strings.TrimSpace(h.do(append([]string{"exec", "-d"}, args...)...))
}

func TestRunAtATerminalIsATerminal(t *testing.T) {
	h := newHome(t)
	run := h.command("run", "--", "bash", "--norc")
	run.Env = append(run.Env, "TERM=dumb")
	p := atTerminal(t, run, &pty.Winsize{Rows: 31, Cols: 97})
	p.types("PS1='yes''? '\r", "yes? ")
	p.types("stty size\r", "31 97\r\nyes? ")
	p.sends("exit 7\r")
	var exit *exec.ExitError
	require.ErrorAs(t, run.Wait(), &exit)
	assert.Equal(t, 7, exit.ExitCode())
	none := h.command("run", "-T", "--", "sh", "-c", "tty; echo en''d")
	atTerminal(t, none, nil).types("", "not a tty\r\nend")
	require.NoError(t, none.Wait())
	h.do("session", "list")
}

// TestKeysLeaveAProcessAndAnotherTakesItOver: two clients at one terminal, of which one leaves by docker's keys.
func TestKeysLeaveAProcessAndAnotherTakesItOver(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	id := h.detached("-t", "-e", "TERM=dumb", "box", "--", "bash", "--norc")
	at := func(rows uint16) (*exec.Cmd, *typist) {
		cmd := h.command("attach", "box", id)
		return cmd, atTerminal(t, cmd, &pty.Winsize{Rows: rows, Cols: 90})
	}
	first, one := at(41)
	one.types("PS1='yes''? '\r", "yes? ")
	one.types("stty size\r", "41 90\r\nyes? ")
	second, two := at(42)
	two.types("\r", "yes? ")
	two.types("stty size\r", "42 90\r\nyes? ")
	one.types("", "42 90\r\nyes? ") // both see all
	one.types("echo fr''om one\r", "from one\r\nyes? ")
	two.types("", "from one\r\nyes? ")
	one.types("\x10\x11", "detached; the process goes on: wisbox attach box "+id)
	require.NoError(t, first.Wait())
	two.types(interruptible+"\r", "started\r\n")
	two.types("\x03", "yes? ") // the key went to the program
	two.sends("exit 9\r")
	var exit *exec.ExitError
	require.ErrorAs(t, second.Wait(), &exit)
	assert.Equal(t, 9, exit.ExitCode())
	assert.Contains(t, h.do("ps", "box"), "exited  9")
	h.do("session", "rm", "box")
}

// TestAKilledClientLeavesItsProcess, whatever the signal.
func TestAKilledClientLeavesItsProcess(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	id := h.detached("-t", "box", "--", "sh", "-c", "while read x; do echo got $x; done")
	for _, end := range []func(*exec.Cmd){
		func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Kill()) },
		func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Signal(os.Interrupt)) },
		func(cmd *exec.Cmd) { require.NoError(t, cmd.Process.Signal(syscall.SIGHUP)) }, // as if its terminal was closed
	} {
		cmd := h.command("attach", "box", id)
		atTerminal(t, cmd, nil).types("one\r", "got one")
		end(cmd)
		_ = cmd.Wait()
	}
	reader := h.command("logs", "-f", "box", id)
	var seen bytes.Buffer
	reader.Stdout = &seen
	h.begin(reader)
	require.NoError(t, reader.Process.Kill())
	_ = reader.Wait()
	assert.Contains(t, h.do("ps", "box"), "running")
	again := h.command("attach", "box", id)
	atTerminal(t, again, nil).types("two\r", "got two")
	h.do("kill", "box", id)
	var exit *exec.ExitError
	require.ErrorAs(t, again.Wait(), &exit)
	assert.Equal(t, 137, exit.ExitCode())
	h.do("session", "rm", "box")
}

// TestAGigabyteLeavesTheHolderSmall: a process writes a gigabyte while one attached client reads nothing, and others
// read and leave.
func TestAGigabyteLeavesTheHolderSmall(t *testing.T) {
	hosttest.Slow(t)
	h := newHome(t)
	h.do("session", "create", "box")
	h.do("exec", "box", "--", "true")
	before := h.holderMemory("box")
	id := h.detached("box", "--", "sh", "-c", "head -c 1073741824 /dev/zero; echo; echo end")
	stopped := h.command("attach", "box", id)
	out, err := stopped.StdoutPipe() // which nobody reads
	require.NoError(t, err)
	h.begin(stopped)
	defer out.Close()
	high := 0
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		reader := h.command("logs", "-f", "box", id)
		_ = exec.CommandContext(ctx, reader.Path, reader.Args[1:]...).Run()
		high = max(high, h.holderMemory("box"))
		return strings.Contains(h.do("ps", "box"), "exited  0")
	}, 5*time.Minute, time.Millisecond)
	assert.Less(t, high, before+64<<20, "%d MiB before, %d MiB then", before>>20, high>>20)
	assert.Equal(t, "end\n", h.do("logs", "--tail", "1", "box", id))
	killed(t, stopped)
	h.do("session", "rm", "box")
}

// holderMemory returns the resident memory of a session's holder, in bytes.
func (h *home) holderMemory(session string) int {
	h.t.Helper()
	mark, err := os.ReadFile(fmt.Sprintf("%s/sessions/%s/held", h.cache, session))
	require.NoError(h.t, err)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%s/status", mark))
	require.NoError(h.t, err)
	_, rest, found := strings.Cut(string(status), "VmRSS:")
	require.True(h.t, found)
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(h.t, err)
	return kib << 10
}
