package gitignore_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/gitignore"
	_ "github.com/wisbox/wisbox/internal/properties"
)

// byGit returns the paths that git ignores.
func byGit(t require.TestingT, rules string, paths []string) map[string]bool {
	dir, err := os.MkdirTemp("", "ignore")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(rules), 0o644))
	require.NoError(t, exec.Command("git", "-C", dir, "init", "-q").Run())
	cmd := exec.Command("git", "-C", dir, "-c", "core.excludesFile=", "check-ignore", "-z", "--stdin", "--no-index")
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	var out bytes.Buffer
	cmd.Stdout = &out
	_ = cmd.Run() // 1: nothing is ignored
	ignored := map[string]bool{}
	for p := range strings.SplitSeq(out.String(), "\x00") {
		ignored[p] = p != ""
	}
	return ignored
}

// ours matches a file as git does: first the directories above it.
func ours(rules *gitignore.Rules, path string) bool {
	for i := range len(path) {
		if path[i] == '/' {
			if ignored, _ := rules.Match(path[:i], true); ignored {
				return true
			}
		}
	}
	ignored, _ := rules.Match(path, false)
	return ignored
}

func TestRulesMatchAsGitsDo(t *testing.T) {
	rules := strings.Join([]string{
		"# a comment", `\#hash`, "*.log", "!keep.log", "build/", "/top", "a/b", "**/deep", "x/**", "y/**/z", "sp ace ", `trail\ `, "[ab].c", "[!ab].d", "[[:digit:]]*.n",
		"{a,b}.e", `\!bang`, "q?x", "crlf\r", "unclosed[", "**", "!*", "f[]]g", "r[a-c]s", "é*", "k[^/]l", "m**n", "o**/p", "r/s**",
	}, "\n")
	paths := []string{
		"#hash", "# a comment", "a.log", "keep.log", "d/keep.log", "build", "build/x", "d/build/x", "top", "d/top", "a/b", "d/a/b", "deep", "d/e/deep", "x/1", "x", "y/z", "y/1/z", "y/1/2/z",
		"sp ace", "trail ", "trail", "a.c", "c.c", "a.d", "c.d", "1a.n", "a1.n", "a.e", "{a,b}.e", "!bang", "qax", "q/x", "crlf", "unclosed[", "f]g", "rbs", "rds", "éa", "k/l", "kal", "mn", "m1n", "m/n", "op", "o1/p", "o1/2/p", "r/s1", "r/s",
	}
	for _, text := range []string{rules, strings.Replace(rules, "\n**\n!*", "", 1), "\ufeff*.x\n" + strings.ReplaceAll(rules, "**\n!*\n", "")} {
		want, parsed := byGit(t, text, paths), gitignore.Parse(text)
		for _, p := range paths {
			assert.Equal(t, want[p], ours(parsed, p), "%q", p)
		}
	}
}

// TestAnyRulesMatchAsGitsDo with random rules and paths of few characters, which meet often.
func TestAnyRulesMatchAsGitsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(rapid.StringMatching(`!?/?([ab*?\\ ]|\*\*/|/|\[a\]|\[!b\]|/\*\*){1,6}/?`), 1, 4).Draw(t, "rules")
		paths := rapid.SliceOfNDistinct(rapid.StringMatching(`[ab ]{1,3}(/[ab]{1,2}){0,3}`), 1, 20, rapid.ID).Draw(t, "paths")
		text := strings.Join(rules, "\n")
		want, parsed := byGit(t, text, paths), gitignore.Parse(text)
		for _, p := range paths {
			if want[p] != ours(parsed, p) {
				t.Fatalf("rules %q, path %q: git says %v", text, p, want[p])
			}
		}
	})
}

// TestTheMemoryOfRulesIsKnown: no rules take more than they say, and ordinary ones say little.
func TestTheMemoryOfRulesIsKnown(t *testing.T) {
	for _, rule := range []string{
		strings.Repeat("[!a]", 64), strings.Repeat("[a-y]x", 60), "*" + strings.Repeat("?", 63), strings.Repeat("*?", 32), "/" + strings.Repeat("**/", 32), strings.Repeat("é", 2_000),
		strings.Repeat("x", 4_000), "a", "*.pyc", "[!a]", "d/**/*.[oa]",
	} {
		text := strings.Repeat(rule+"\n", 100_000/(len(rule)+1))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		rules := gitignore.Parse(text)
		runtime.GC()
		runtime.ReadMemStats(&after)
		require.Positive(t, rules.Len(), "%.10s", rule)
		assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(rules.Memory()), "%.10s", rule)
		runtime.KeepAlive(rules)
	}
	assert.Less(t, gitignore.Parse("node_modules/\n*.log\nbuild/*\n!build/kept\n").Memory(), 16<<10)
}

func TestRulesOfManyWildcardsMatchNothing(t *testing.T) {
	assert.Equal(t, 1, gitignore.Parse(strings.Repeat("**/", 32)+"b\n").Len())
	assert.Zero(t, gitignore.Parse(strings.Repeat("**/", 1_000)+"b\n"+strings.Repeat("*?", 33)).Len())
}

// TestHostileRulesCostLittle: the time is linear, whatever they repeat.
func TestHostileRulesCostLittle(t *testing.T) {
	long := strings.Repeat("a", 4_000)
	for _, text := range []string{strings.Repeat("*a", 2_000) + "b", strings.Repeat("**/", 1_000) + "b", strings.Repeat("[", 4_000), strings.Repeat("x\n", 1<<20), strings.Repeat("a?", 1_000)} {
		rules := gitignore.Parse(text)
		assert.LessOrEqual(t, rules.Len(), 4_096)
		rules.Match(long, false)
	}
}
