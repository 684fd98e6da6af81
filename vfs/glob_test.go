package vfs_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func globWorld(t *testing.T) *world {
	w := newWorld(t)
	for _, name := range []string{"r.py", "src/a.py", "src/p/b.py", "src/p/c.txt", "docs/x.md", "docs/y.md"} {
		w.file(name, "12345")
	}
	return w
}

func TestGlobMatches(t *testing.T) {
	w := globWorld(t)
	for _, c := range []struct {
		args string
		want []any
	}{
		{`"pattern":"*.py"`, []any{"r.py", "src/a.py", "src/p/b.py"}},
		{`"pattern":"**/*.py"`, []any{"r.py", "src/a.py", "src/p/b.py"}},
		{`"pattern":"src/*.py"`, []any{"src/a.py"}},
		{`"pattern":"*.md","path":"docs"`, []any{"docs/x.md", "docs/y.md"}},
		{`"pattern":"p/*","path":"/workspace/src"`, []any{"src/p/b.py", "src/p/c.txt"}},
		{`"pattern":"docs/[xz].md"`, []any{"docs/x.md"}},
		{`"pattern":"**/{b,x}.*"`, []any{"docs/x.md", "src/p/b.py"}},
		{`"pattern":"src/**"`, []any{"src", "src/a.py", "src/p", "src/p/b.py", "src/p/c.txt"}},
		{`"pattern":"nope"`, nil},
	} {
		assert.Equal(t, c.want, w.ok("glob", `{`+c.args+`}`).each("matches", "path"), c.args)
	}
	a := w.ok("glob", `{"pattern":"src/*"}`)
	assert.Equal(t, []any{"file", "directory"}, a.each("matches", "kind"))
	assert.Equal(t, []any{5.0, 0.0}, a.each("matches", "size_bytes"))
}

func TestGlobRefuses(t *testing.T) {
	w := globWorld(t)
	for _, pattern := range []string{"", "[", "../*", "/etc/*", "ü*", `a\u0000*`, "a[z-"} {
		assert.Equal(t, "pattern", w.refused(tool.Invalid, "glob", `{"pattern":"`+pattern+`"}`).Field)
	}
	w.refused(tool.NotFound, "glob", `{"pattern":"*","path":"nothere"}`)
	w.refused(tool.NotDir, "glob", `{"pattern":"*","path":"r.py"}`)
}

func TestGlobNeitherFollowsLinksNorStopsAtOddThings(t *testing.T) {
	w := newWorld(t)
	w.file("g/f", "x")
	w.link("/", "g/root")
	w.link(".", "g/self")
	w.link(w.outside, "g/out")
	w.fifo("g/p")
	w.file("g/\xff\n", "x")
	within(t, func() {
		a := w.ok("glob", `{"pattern":"**"}`)
		assert.Equal(t, []any{"g", "g/f", "g/out", "g/p", "g/root", "g/self", `g/\xff\n`}, a.each("matches", "path"))
		assert.NotContains(t, a["json"], "leak")
	})
}

func TestWalksReachTheBottomOfDeepTrees(t *testing.T) {
	w := newLargeWorld(t)
	w.deep("deep", 5_000)
	before := openFiles(t)
	within(t, func() {
		a := w.ok("glob", `{"pattern":"bottom.txt"}`)
		assert.Len(t, a["matches"], 1)
		assert.Equal(t, false, a["truncated"])
		a = w.ok("grep", `{"pattern":"needle"}`)
		assert.Len(t, a["matches"], 1)
		assert.Equal(t, false, a["truncated"])
	})
	within(t, func() {
		assert.Equal(t, 5_002.0, w.ok("rm", `{"path":"deep"}`)["deleted"])
	})
	assert.Equal(t, before, openFiles(t))
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func TestPathsAreSortedByTheirSegments(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a-b", "a/b", "a/b-c/d", "a/b.c", "a.txt", "ab"} {
		w.file(name, "needle\n")
	}
	want := []any{"a", "a/b", "a/b-c", "a/b-c/d", "a/b.c", "a-b", "a.txt", "ab"}
	assert.Equal(t, want, w.ok("glob", `{"pattern":"**"}`).each("matches", "path"))
	want = []any{"a/b", "a/b-c/d", "a/b.c", "a-b", "a.txt", "ab"}
	assert.Equal(t, want, w.ok("grep", `{"pattern":"needle"}`).each("matches", "path"))
}

// TestTheGuidanceSaysHowToWorkWell: each habit that spares a model time and failures is a clause.
func TestTheGuidanceSaysHowToWorkWell(t *testing.T) {
	for _, clause := range []string{
		"Look around with ls first, and list only the directories that you need", "so that no edit is stale", "Keep edits concise and binary files small",
		"write a file once rather than in many appends", "Don't copy large repositories or binaries",
	} {
		assert.Contains(t, vfs.About, clause)
	}
}
