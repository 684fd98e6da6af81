package profile_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestPatchesThatCodexTakes gives random patches to Codex's own apply_patch: whatever that takes has the same result here.
func TestPatchesThatCodexTakes(t *testing.T) {
	if os.Getenv("WISBOX_NIGHTLY") == "" {
		t.Skip("it installs Codex from npm's registry; make nightly runs it")
	}
	codex := installCodex(t)
	taken := 0
	for seed := range uint64(200) {
		s := &patchSource{rand.New(rand.NewPCG(seed, 1))}
		files, text := s.patch()
		set, root := newSet(t, "openai")
		theirs, err := os.OpenRoot(t.TempDir())
		require.NoError(t, err)
		for name, old := range files {
			put(t, root, name, old)
			put(t, theirs, name, old)
		}
		cmd := exec.Command(codex, "--codex-run-as-apply-patch", text)
		cmd.Dir = theirs.Name()
		if cmd.Run() != nil {
			continue
		}
		taken++
		_, err = call(t, set, "apply_patch", map[string]any{"input": text})
		assert.NoError(t, err, "seed %d\n%q\n%s", seed, files, text)
		assert.Equal(t, filesOf(t, theirs), filesOf(t, root), "seed %d\n%q\n%s", seed, files, text)
	}
	assert.Greater(t, taken, 50, "most are taken")
}

func installCodex(t *testing.T) string {
	if _, err := exec.LookPath("npm"); err != nil {
		hosttest.Lacks(t, "npm is missing")
	}
	dir := t.TempDir()
	out, err := exec.Command("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", dir, "@openai/codex@0.171.0").CombinedOutput()
	require.NoError(t, err, "%s", out)
	found, err := filepath.Glob(filepath.Join(dir, "node_modules/@openai/codex-*/vendor/*/bin/codex"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

func filesOf(t *testing.T, root *os.Root) (all []string) {
	require.NoError(t, fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, fmt.Sprintf("%s=%q", path, get(t, root, path)))
		}
		return err
	}))
	return all
}

// patchSource writes patches as models do, with their slips.
type patchSource struct{ *rand.Rand }

func (s *patchSource) chance(percent int) bool { return s.IntN(100) < percent }

func (s *patchSource) pick(all ...string) string { return all[s.IntN(len(all))] }

func (s *patchSource) line() string {
	return s.pick("a", "b", "c", "def f():", "    return 1", "", "", "it’s – “x”", "\tx", "end  ")
}

func (s *patchSource) patch() (files map[string]string, text string) {
	files = map[string]string{}
	parts := []string{s.pick("*** Begin Patch", "*** Begin Patch", " *** Begin Patch ")}
	for _, name := range []string{"f", "g"} {
		lines := make([]string, 1+s.IntN(9))
		for i := range lines {
			lines[i] = s.line()
		}
		files[name] = strings.Join(lines, "\n") + "\n" // Codex would add it
		parts = append(parts, s.pick("", " ")+"*** Update File: "+s.pick("", "./")+name)
		if s.chance(15) {
			parts = append(parts, "*** Move to: "+s.pick("sub/"+name, "sub/"+name, map[string]string{"f": "g", "g": "f"}[name])) // Codex removes a file that is moved onto itself
		}
		parts = append(parts, s.chunks(lines)...)
	}
	if s.chance(30) {
		parts = append(parts, "*** Add File: "+s.pick("new", "new", "f", "g"), "+"+s.line(), "+x")
	}
	return files, strings.Join(append(parts, s.pick("*** End Patch", "*** End Patch\n")), s.pick("\n", "\n", "\n", "\r\n"))
}

// chunks replaces some of the lines, and adds some.
func (s *patchSource) chunks(lines []string) (out []string) {
	for at := 0; at == 0 || at < len(lines) && s.chance(50); {
		from := at + s.IntN(len(lines)-at)
		to := min(len(lines), from+1+s.IntN(4))
		header := "@@"
		if from > at && s.chance(30) {
			header += " " + s.slip(lines[from-1])
		}
		out = append(out, header)
		if s.chance(10) {
			out = append(out, "")
		}
		for _, l := range lines[from:to] {
			switch {
			case s.chance(50):
				out = append(out, " "+s.slip(l))
			default:
				out = append(out, "-"+s.slip(l))
				if s.chance(70) {
					out = append(out, "+"+s.line())
				}
			}
			if s.chance(15) {
				out = append(out, "+"+s.line())
			}
		}
		switch at = to; {
		case s.chance(15):
			out = append(out, "")
		case s.chance(10):
			out = append(out, " ")
		}
		if to == len(lines) && s.chance(30) {
			out = append(out, "*** End of File")
		}
	}
	return out
}

// slip returns a line as a model may give it.
func (s *patchSource) slip(line string) string {
	switch {
	case s.chance(60):
		return line
	case s.chance(30):
		return line + " "
	case s.chance(40):
		return strings.NewReplacer("’", "'", "–", "-", "“", `"`, "”", `"`).Replace(line)
	case s.chance(20):
		return " " + line
	}
	return strings.TrimRight(line, " ")
}
