package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestChangesThatWentNowhereAreAskedAbout by rm and reset on a terminal, unless -f is given, nothing has changed, or the
// changes were taken.
func TestChangesThatWentNowhereAreAskedAbout(t *testing.T) {
	h := newHome(t)
	project := filepath.Join(t.TempDir(), "project")
	require.NoError(t, os.Mkdir(project, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(project, "f"), []byte("1\n"), 0o644))
	h.do("session", "create", "box", "--mount", project)
	edit := func() { h.do("exec", "box", "--", "sh", "-c", "echo more >>f") }

	quiet := func(args ...string) {
		t.Helper()
		cmd := h.command(args...)
		p := atTerminal(t, cmd, nil)
		p.types("", "box")
		require.NoError(t, cmd.Wait(), args)
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.NotContains(t, p.seen.String(), "[y/N]")
	}
	quiet("session", "reset", "box")
	edit()
	cmd := h.command("session", "reset", "box")
	p := atTerminal(t, cmd, nil)
	p.types("", "box has 1 changed file that went nowhere (wisbox diff box shows them); reset it? [y/N]")
	p.types("n\r", "nothing was changed")
	require.Error(t, cmd.Wait())
	assert.Contains(t, h.do("exec", "box", "--", "cat", "f"), "more")
	cmd = h.command("session", "reset", "box")
	p = atTerminal(t, cmd, nil)
	p.types("", "[y/N]")
	p.types("y\r", `wisbox snapshot restore box "before reset"`)
	require.NoError(t, cmd.Wait())
	assert.Equal(t, "1\n", h.do("exec", "box", "--", "cat", "f"))
	edit()
	quiet("session", "reset", "-f", "box")

	edit()
	h.do("apply", "box")
	quiet("session", "reset", "box")
	edit()
	h.do("diff", "box", "--patch")
	quiet("session", "reset", "box")
	edit()
	cmd = h.command("rm", "box")
	p = atTerminal(t, cmd, nil)
	p.types("", "remove it? [y/N]")
	p.types("\r", "nothing was changed; take the files with wisbox apply, branch or cp, or give -f")
	require.Error(t, cmd.Wait())
	assert.Contains(t, h.do("ls"), "box")
	h.do("session", "save", "box", filepath.Join(t.TempDir(), "box.wisbox"))
	quiet("rm", "box")
	h.do("session", "create", "box", "--mount", project)
	edit()
	h.do("rm", "box") // no terminal
}
