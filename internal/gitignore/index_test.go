package gitignore_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/gitignore"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%v: %s", args, out)
	return string(out)
}

func TestAnIndexOfAnyVersionIsRead(t *testing.T) {
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "3", "4"} {
			t.Run(format+version, func(t *testing.T) {
				dir := t.TempDir()
				git(t, dir, "init", "-q", "--object-format="+format)
				for i := range 300 {
					name := filepath.Join(dir, fmt.Sprintf("d%d/%s", i%7, strings.Repeat("n", i%40)+fmt.Sprint(i)))
					require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
					require.NoError(t, os.WriteFile(name, []byte("x"), 0o644))
				}
				git(t, dir, "add", ".")
				git(t, dir, "commit", "-qm", "x")
				if version == "3" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, "intended"), nil, 0o644))
					git(t, dir, "add", "-N", "intended")
				} else {
					git(t, dir, "update-index", "--index-version", version)
				}
				raw, err := os.ReadFile(filepath.Join(dir, ".git/index"))
				require.NoError(t, err)
				require.Equal(t, version, fmt.Sprint(raw[7]))
				var got []string
				require.NoError(t, gitignore.ReadIndex(raw, func(path []byte) { got = append(got, string(path)) }))
				assert.Equal(t, strings.Fields(git(t, dir, "ls-files")), got)
			})
		}
	}
}

func TestAnIndexThatHasNotAllFilesIsRefused(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o644))
	git(t, dir, "add", "a")
	raw, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	require.NoError(t, err)
	git(t, dir, "update-index", "--split-index")
	split, err := os.ReadFile(filepath.Join(dir, ".git/index"))
	require.NoError(t, err)
	many := slices.Clone(raw)
	copy(many[8:], "\xff\xff\xff\xff")
	for _, bad := range [][]byte{nil, split, raw[:40], raw[:len(raw)-21], many, append([]byte("DIRX"), raw[4:]...)} {
		assert.ErrorIs(t, gitignore.ReadIndex(bad, func([]byte) {}), gitignore.ErrIndex)
	}
}

func FuzzAnIndexNeverHurts(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x04\x00\x00\x00\x01" + strings.Repeat("\x00", 90)))
	f.Fuzz(func(t *testing.T, index []byte) {
		n := 0
		if gitignore.ReadIndex(index, func([]byte) { n++ }) == nil {
			require.LessOrEqual(t, n, len(index))
		}
	})
}
