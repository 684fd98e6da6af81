package glob_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/glob"
	"github.com/wisbox/wisbox/tool"
)

func TestPatternsMatchAsTheContractSays(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"*.py", []string{"a.py", "src/a.py", ".py", "x/.h.py"}, []string{"a.pyc", "a.py/x"}},
		{"**/*.py", []string{"a.py", "src/p/a.py"}, []string{"a.md"}},
		{"src/*.py", []string{"src/a.py"}, []string{"a.py", "src/p/a.py"}},
		{"src/**/*.py", []string{"src/a.py", "src/p/q/a.py"}, []string{"lib/a.py"}},
		{"src/**", []string{"src/a", "src/a/b", "src"}, []string{"srcs"}},
		{"**", []string{"a", "a/b"}, []string{""}},
		{"*", []string{"a", "a/b"}, []string{""}},
		{"docs/[xz].md", []string{"docs/x.md"}, []string{"docs/y.md"}},
		{"[!a]", []string{"b", "d/c"}, []string{"a"}},
		{"{a,b}.txt", []string{"a.txt", "d/b.txt"}, []string{"c.txt"}},
		{"?.go", []string{"a.go"}, []string{"ab.go", ".go"}},
		{`\*`, []string{"*"}, []string{"a"}},
		{"Makefile", []string{"Makefile", "x/Makefile"}, []string{"makefile"}},
	} {
		p, err := glob.Compile(c.pattern)
		require.NoError(t, err, c.pattern)
		for _, path := range c.yes {
			assert.True(t, p.Match(path), "%s should match %s", c.pattern, path)
		}
		for _, path := range c.no {
			assert.False(t, p.Match(path), "%s should not match %s", c.pattern, path)
		}
	}
}

func TestBadPatternsAreInvalid(t *testing.T) {
	for _, pattern := range []string{
		"", "[", "a[z-", "{a", "../*", "a/../b", "{..,a}/b", "./a", "/etc/*", "a\x00*", "ü*", "a\n", `a\`,
		strings.Repeat("a", glob.MaxLength+1), strings.Repeat("{a,b}", 30),
	} {
		_, err := glob.Compile(pattern)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", pattern)
	}
}

func TestWalksNeedNotGoWhereNothingMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, dir string
		want         bool
	}{
		{"*.py", "a/b", true}, {"src/*.py", "src", true}, {"src/*.py", "src/p", false}, {"src/*.py", "lib", false},
		{"src/lib/**", "src", true}, {"src/lib/**", "src/lib/x/y", true}, {"src/lib/**", "src/other", false},
		{"src/lib/**", "src/library", false}, {"{a,b/c}/d", "b/c", true}, {"**/x/y", "q/r/s", true}, {"*/*", "a", true}, {"*/*", "a/b", false},
	} {
		p, err := glob.Compile(c.pattern)
		require.NoError(t, err)
		assert.Equal(t, c.want, p.Descend(c.dir), "%s in %s", c.pattern, c.dir)
	}
}

func TestNoPatternTakesLong(t *testing.T) {
	path := strings.Repeat(strings.Repeat("a", 60)+"/", 60) + "b"
	for _, pattern := range []string{
		strings.Repeat("**/", 100) + "x", strings.Repeat("*a", 200) + "c", strings.Repeat("{a,aa}", 10) + "*x", "**/" + strings.Repeat("*{a,b}", 10) + "/x",
	} {
		p, err := glob.Compile(pattern)
		require.NoError(t, err)
		start := time.Now()
		assert.False(t, p.Match(path))
		assert.Less(t, time.Since(start), 30*time.Second, pattern)
	}
}

func FuzzShortcutsAgreeWithTheLibrary(f *testing.F) {
	f.Add("**/*.py", "src/a.py")
	f.Add("*.{go,md}", "x/y.md")
	f.Add("a/**/b", "a/b")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		p, err := glob.Compile(pattern)
		if err != nil {
			require.Equal(t, tool.Invalid, tool.KindOf(err))
			return
		}
		got := p.Match(path)
		if path == "" || strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.Contains(path, "//") {
			return // no path of a walk
		}
		full := pattern
		if !strings.Contains(pattern, "/") {
			full = "**/" + pattern
		}
		require.Equal(t, doublestar.MatchUnvalidated(full, path), got, "%q on %q", pattern, path)
		for i := range len(path) {
			if got && path[i] == '/' {
				require.True(t, p.Descend(path[:i]), "%q must go into %q for %q", pattern, path[:i], path)
			}
		}
	})
}

func TestPatternsInUnicode(t *testing.T) {
	p, err := glob.CompileText("stra?e/[ä-ü]*.{日本,txt}")
	require.NoError(t, err)
	assert.True(t, p.Match("straße/über.日本"))
	assert.False(t, p.Match("strasse/über.日本"))
	for _, pattern := range []string{"ü\x00", "ü\u202e*", "caf\xe9", "../ü", strings.Repeat("ü", glob.MaxLength+1)} {
		_, err := glob.CompileText(pattern)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", pattern)
	}
}
