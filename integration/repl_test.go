package integration

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// typist is a person at `wisbox repl`.
type typist struct {
	t    *testing.T
	keys *os.File

	mu   sync.Mutex
	seen strings.Builder
	at   int // how much of seen has been looked at
}

func (p *typist) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

// types sends keys and waits until the screen shows want after them.
func (p *typist) types(keys, want string) {
	p.t.Helper()
	_, err := p.keys.WriteString(keys)
	require.NoError(p.t, err)
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the screen: %.4000q", p.seen.String())
		}
	}()
	require.Eventually(p.t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := strings.Index(p.seen.String()[p.at:], want)
		if i >= 0 {
			p.at += i + len(want)
		}
		return i >= 0
	}, 20*time.Second, 5*time.Millisecond, "after %q, waiting for %q", keys, want)
}

func TestReplAtATerminal(t *testing.T) {
	need(t)
	bin, environ := binary(t), append(os.Environ(), "WISBOX_CACHE="+t.TempDir())
	wisbox := func(args ...string) *exec.Cmd {
		cmd := exec.Command(bin, args...)
		cmd.Env = environ
		return cmd
	}
	require.NoError(t, wisbox("session", "create", "box").Run())
	defer func() {
		out, err := wisbox("session", "rm", "box").CombinedOutput()
		assert.NoError(t, err, string(out))
	}()

	repl := wisbox("repl", "box")
	screen, err := pty.Start(repl)
	require.NoError(t, err)
	defer func() { _ = repl.Process.Kill(); _ = screen.Close(); _ = repl.Wait() }() // else a failed test leaves it attached
	p := &typist{t: t, keys: screen}
	go func() { _, _ = p.readAll() }()

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
	require.Eventually(t, func() bool { return wisbox("exec", "box", "--", "test", "-e", "begun").Run() == nil }, 20*time.Second, 50*time.Millisecond)
	p.types("\x03", "so far\r\nKeyboardInterrupt\r\n>>> ")
	p.types("x\r", "\r\n41\r\n")                                   // the names are still there
	p.types("import time; time.sleep(0.3)\rx + 2\r", "\r\n43\r\n") // typed ahead
	p.types("half a line\x03", "KeyboardInterrupt\r\n>>> ")
	p.types("x\r", "\r\n41\r\n")
	_, err = screen.WriteString("\x04")
	require.NoError(t, err)
	assert.NoError(t, repl.Wait())

	piped := wisbox("repl", "box")
	piped.Stdin = strings.NewReader("y = x + 1\nfor i in range(2):\n    print(i)\n\ny\n")
	out, err := piped.CombinedOutput()
	require.NoError(t, err)
	assert.Equal(t, "0\n1\n42\n", string(out))
	assert.Error(t, wisbox("repl", "nosuch").Run())
}

func (p *typist) readAll() (int64, error) {
	buf := make([]byte, 4096)
	for {
		n, err := p.keys.Read(buf)
		_, _ = p.Write(buf[:n])
		if err != nil {
			return 0, err
		}
	}
}
