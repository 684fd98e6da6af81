package wisbox_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// threats is the number of threats in the model, from T01.
const threats = 30

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// sources returns every Go file of the module with its content.
func sources(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		raw, err := os.ReadFile(path)
		out[filepath.ToSlash(path)] = string(raw)
		return err
	}))
	return out
}

// testNames returns the tests and fuzz targets by the directory of their package, and their files.
func testNames(t *testing.T) (names map[string][]string, files map[string]bool) {
	t.Helper()
	names, files = map[string][]string{}, map[string]bool{}
	for path, source := range sources(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range testFunc.FindAllStringSubmatch(source, -1) {
			dir := filepath.Dir(path)
			names[dir], files[path] = append(names[dir], m[1]), true
		}
	}
	return names, files
}

// A control needs an existing test.
func TestEveryControlHasItsTest(t *testing.T) {
	page, err := os.ReadFile("SECURITY.md")
	require.NoError(t, err)
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	names, files := testNames(t)
	all := slices.Concat(slices.Collect(maps.Values(names))...)
	there := func(shown string) bool {
		start, cut := strings.CutSuffix(shown, "…")
		switch target, make := strings.CutPrefix(shown, "make "); {
		case make:
			return strings.Contains(string(makefile), "\n"+target+":")
		case regexp.MustCompile(`^F\d\d$`).MatchString(start): // the end of a range
			start = "TestFault_" + start
		}
		return files[shown] || names[shown] != nil || slices.ContainsFunc(all, func(n string) bool { return n == start || cut && strings.HasPrefix(n, start) })
	}
	var seen strings.Builder
	for row := range strings.SplitSeq(string(page), "\n") {
		cells := strings.Split(row, " | ")
		if len(cells) != 4 || !strings.HasPrefix(row, "| T") {
			continue
		}
		seen.WriteString(cells[0])
		shown := quoted.FindAllStringSubmatch(cells[3], -1)
		assert.NotEmpty(t, shown, "no test: %s", row)
		for _, s := range shown {
			assert.True(t, there(s[1]), "there is no %s, which shows %q", s[1], cells[1])
		}
	}
	for n := 1; n <= threats; n++ {
		assert.Contains(t, seen.String(), fmt.Sprintf("T%02d", n), "a threat without a control")
	}
}

// Git on a hostile tree runs programs that the tree names. internal/plumbing writes objects and a
// ref from an empty directory of its own.
func TestNoGitIsRun(t *testing.T) {
	git := regexp.MustCompile(`(Command|CommandContext|LookPath)\([^)]*"git"|Argv: *\[\]string\{"git"`)
	for path, source := range sources(t) {
		if !strings.HasSuffix(path, "_test.go") && !strings.HasPrefix(path, "bench/") && !strings.HasPrefix(path, "internal/plumbing/") && !strings.HasSuffix(filepath.Dir(path), "test") {
			assert.False(t, git.MatchString(source), path)
		}
	}
}
