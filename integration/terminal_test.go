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

// typist is a person at a program's terminal.
type typist struct {
	t      *testing.T
	screen *os.File

	mu   sync.Mutex
	seen strings.Builder
	at   int // how much of seen has been looked at
}

// atTerminal starts a program at a terminal of its own. A test that fails does not
// leave it there: it would stay attached to its session.
func atTerminal(t *testing.T, cmd *exec.Cmd, size *pty.Winsize) *typist {
	t.Helper()
	screen, err := pty.StartWithSize(cmd, size)
	require.NoError(t, err)
	p := &typist{t: t, screen: screen}
	var reading sync.WaitGroup
	reading.Go(p.read)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = screen.Close()
		_ = cmd.Wait()
		reading.Wait()
	})
	return p
}

// read takes in what the program shows until it has ended.
func (p *typist) read() {
	buf := make([]byte, 4096)
	for {
		n, err := p.screen.Read(buf)
		p.mu.Lock()
		p.seen.Write(buf[:n])
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// sends gives the program keys.
func (p *typist) sends(keys string) {
	p.t.Helper()
	_, err := p.screen.WriteString(keys)
	require.NoError(p.t, err)
}

// types sends keys and waits until the screen shows want after them.
func (p *typist) types(keys, want string) {
	p.t.Helper()
	p.sends(keys)
	if !assert.Eventually(p.t, func() bool { return p.sees(want) }, time.Minute, 5*time.Millisecond, "after %q, waiting for %q", keys, want) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.t.Fatalf("the screen: %.4000q", p.seen.String())
	}
}

// sees finds want in what was not looked at yet, and has then looked at it.
func (p *typist) sees(want string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := strings.Index(p.seen.String()[p.at:], want)
	if i >= 0 {
		p.at += i + len(want)
	}
	return i >= 0
}
