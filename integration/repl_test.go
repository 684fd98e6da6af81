package integration

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReplAtATerminal(t *testing.T) {
	h := newHome(t)
	h.do("session", "create", "box")
	repl := h.command("repl", "box")
	p := atTerminal(t, repl, nil)

	p.types("", ">>> ")
	p.types("x = 41\r", ">>> ")
	p.types("x + 1\r", "\r\n42\r\n")
	p.types("def f(n):\r", "... ")
	p.types("\treturn n * x\r", "... ")
	p.types("\r", ">>> ")
	p.types("f(2)\r", "\r\n82\r\n")
	p.types("(1 +\r", "... ")
	p.types("2)\r", "\r\n3\r\n")
	p.types("\x1b[A\x1b[A\x1b[A\r", "\r\n82\r\n") // up: the history
	p.types("1/0\r", "ZeroDivisionError: division by zero\r\n")
	p.types("while True: pass\r\r", "... \r\n")
	p.types("\x03", "KeyboardInterrupt\r\n>>> ")
	p.types("import time; print('so ' + 'far'); open('begun', 'w').close(); time.sleep(60)\r", "\r\n")
	require.Eventually(t, func() bool { return h.command("exec", "box", "--", "test", "-e", "begun").Run() == nil }, time.Minute, 50*time.Millisecond)
	p.types("\x03", "so far\r\nKeyboardInterrupt\r\n>>> ")
	p.types("x\r", "\r\n41\r\n")                                   // the names are still there
	p.types("import time; time.sleep(0.3)\rx + 2\r", "\r\n43\r\n") // typed ahead
	p.types("half a line\x03", "KeyboardInterrupt\r\n>>> ")
	p.types("x\r", "\r\n41\r\n")
	p.types("while True: pass\r\r", "... \r\n")
	p.sends("lost\x03\x04") // in one write: Ctrl-C discards the text before it, not the keys after it
	assert.NoError(t, repl.Wait())

	repl = h.command("repl", "box")
	p = atTerminal(t, repl, nil)
	p.types("", ">>> ")
	p.types("half a line", "half a line")
	require.NoError(t, repl.Process.Signal(syscall.SIGTERM))
	_ = repl.Wait()
	assert.Equal(t, 128+int(syscall.SIGTERM), repl.ProcessState.ExitCode())

	piped := h.command("repl", "box")
	piped.Stdin = strings.NewReader("y = x + 1\nfor i in range(2):\n    print(i)\n\ny\n")
	out, err := piped.CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "0\n1\n42\n", string(out))
	h.fail("repl", "nosuch")
	h.do("session", "rm", "box")
}
