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
	at   int // the part of seen that has been examined
}

// atTerminal starts a program at its own terminal, and kills it if the test fails: it would stay attached to its
// session.
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

// read reads the program's output until it has ended.
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

// sends sends keys to the program.
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

// sees finds want in the part that was not examined yet, and marks it as examined.
func (p *typist) sees(want string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := strings.Index(p.seen.String()[p.at:], want)
	if i >= 0 {
		p.at += i + len(want)
	}
	return i >= 0
}
