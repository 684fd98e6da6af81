package vfs_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/tool"
)

func TestGrepFindsLines(t *testing.T) {
	w := newWorld(t)
	w.file("docs/a.md", "alpha\nbeta\ngamma\n")
	w.file("docs/b.txt", "x ☕ beta\nBETA")
	w.file(".hidden", "beta")
	for _, c := range []struct {
		args           string
		paths          []any
		lines, columns []any
	}{
		{`"pattern":"beta","path":"docs/a.md"`, []any{"docs/a.md"}, []any{2.0}, []any{1.0}},
		{`"pattern":"beta"`, []any{".hidden", "docs/a.md", "docs/b.txt"}, []any{1.0, 2.0, 1.0}, []any{1.0, 1.0, 5.0}},
		{`"pattern":"^beta$","ignore_case":true,"path":"docs"`, []any{"docs/a.md", "docs/b.txt"}, []any{2.0, 2.0}, []any{1.0, 1.0}},
		{`"pattern":"beta","glob":"*.txt"`, []any{"docs/b.txt"}, []any{1.0}, []any{5.0}},
		{`"pattern":"beta","glob":"docs/*"`, []any{"docs/a.md", "docs/b.txt"}, []any{2.0, 1.0}, []any{1.0, 5.0}},
		{`"pattern":"beta","path":"docs/a.md","glob":"*.txt"`, nil, nil, nil},
		{`"pattern":"[^x]a$"`, []any{".hidden", "docs/a.md", "docs/a.md", "docs/a.md", "docs/b.txt"}, []any{1.0, 1.0, 2.0, 3.0, 1.0}, []any{3.0, 4.0, 3.0, 4.0, 7.0}},
		{`"pattern":"alpha|GAMMA"`, []any{"docs/a.md"}, []any{1.0}, []any{1.0}},
		{`"pattern":"a\\nb"`, nil, nil, nil},
		{`"pattern":"(?s)alpha.beta"`, nil, nil, nil},
	} {
		a := w.ok("grep", `{`+c.args+`}`)
		assert.Equal(t, c.paths, a.each("matches", "path"), c.args)
		assert.Equal(t, c.lines, a.each("matches", "line_number"), c.args)
		assert.Equal(t, c.columns, a.each("matches", "column"), c.args)
		assert.Equal(t, false, a["truncated"], c.args)
	}
	a := w.ok("grep", `{"pattern":"zzz"}`)
	assert.Equal(t, 3.0, a["files_searched"])
	assert.Equal(t, "x ☕ beta", w.ok("grep", `{"pattern":"beta","glob":"b.txt"}`).each("matches", "line")[0])
}

func TestGrepFindsTheEndsOfLinesInCRLF(t *testing.T) {
	w := newWorld(t)
	w.file("f", "int a;\r\n\r\nint b; // x\r\nint c;\n")
	for pattern, want := range map[string][]any{
		`;$`: {1.0, 4.0}, `^$`: {2.0}, `x$|a;$`: {1.0, 3.0}, `^int [ac];$`: {1.0, 4.0}, `(?:c|x);?$`: {3.0, 4.0}, `a;\r$`: {1.0}, `;\z`: {1.0, 4.0},
	} {
		assert.Equal(t, want, w.ok("grep", args(map[string]any{"pattern": pattern})).each("matches", "line_number"), pattern)
	}
}

func TestGrepSaysThatNoLineHasALineBreak(t *testing.T) {
	w := newWorld(t)
	w.file("f", "a\nb\n")
	for pattern, broken := range map[string]bool{"a\nb": true, `a\nb`: true, `a\r\n`: true, `a[\n]b`: true, `a[\r\n]+b`: true, `(x|a\n)b`: true, `a\s*$`: false, `a[^b]`: false, `(?s)a.b`: false} {
		a := w.ok("grep", args(map[string]any{"pattern": pattern}))
		assert.Equal(t, broken, strings.Contains(a["text"].(string), "the pattern has a line break"), pattern)
		assert.Equal(t, false, a["truncated"], pattern)
	}
}

func TestGrepShowsTheLinesAround(t *testing.T) {
	w := newWorld(t)
	w.file("f", "1\n2\nhit\n4\n5\nhit")
	a := w.ok("grep", `{"pattern":"hit","before":2,"after":1}`)
	assert.Equal(t, []any{[]any{"1", "2"}, []any{"4", "5"}}, a.each("matches", "before"))
	assert.Equal(t, []any{[]any{"4"}, nil}, a.each("matches", "after"))
	assert.Contains(t, a["text"], "   2- 2\n   3: hit\n   4- 4\n")
}

func TestGrepIsSortedAndBounded(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"c", "a", "b"} {
		w.file(name, "x\nx\n")
	}
	assert.Equal(t, []any{"a", "a", "b", "b", "c", "c"}, w.ok("grep", `{"pattern":"x"}`).each("matches", "path"))
	a := w.ok("grep", `{"pattern":"x","max_matches":3}`)
	assert.Equal(t, []any{"a", "a", "b"}, a.each("matches", "path"))
	assert.Equal(t, true, a["truncated"])
	assert.Contains(t, a["text"], "(there are more matches than one answer holds; ")
	w.file("cp/t", strings.Repeat("x\n", 100_000))
	a = w.ok("grep", `{"pattern":"x","path":"cp","max_matches":5000}`)
	assert.Len(t, a["matches"], 1000)
	assert.Equal(t, true, a["truncated"])
	a = w.ok("grep", `{"pattern":"","path":"cp"}`)
	assert.Len(t, a["matches"], 1000)
	wide := strings.Repeat(strings.Repeat("y", 3000)+"\n", 2000)
	w.file("wide", wide)
	a = w.ok("grep", `{"pattern":"yy","path":"wide","before":100,"after":100}`)
	assert.Less(t, len(a["json"].(string)), 5<<20)
	assert.Equal(t, true, a["truncated"])
	assert.Len(t, a.each("matches", "line")[0], 2000)
}

func TestGrepSkipsAndCounts(t *testing.T) {
	w := newWorld(t)
	w.file("b", "\x00needle\n")
	w.file("t", "needle")
	w.file("latin", "caf\xe9 needle \xff\n")
	w.fifo("p")
	w.link(w.outside, "d")
	w.link(w.outside+"/leak.txt", "l")
	w.link("t", "inside")
	a := w.ok("grep", `{"pattern":"needle"}`)
	assert.Equal(t, []any{"latin", "t"}, a.each("matches", "path"))
	assert.Equal(t, []any{"caf\ufffd needle \ufffd", "needle"}, a.each("matches", "line"))
	assert.Equal(t, []any{6.0, 1.0}, a.each("matches", "column"))
	assert.Equal(t, 1.0, a["files_skipped"])
	assert.Empty(t, w.ok("grep", `{"pattern":"CANARY"}`)["matches"])
	w.refused(tool.NotRegular, "grep", `{"pattern":"x","path":"p"}`)
	w.refused(tool.Escape, "grep", `{"pattern":"x","path":"d"}`)
	w.refused(tool.NotFound, "grep", `{"pattern":"x","path":"nope"}`)
	assert.Len(t, w.ok("grep", `{"pattern":"needle","path":"inside"}`)["matches"], 1)
}

func TestGrepRefusesPatterns(t *testing.T) {
	w := newWorld(t)
	for pattern, says := range map[string]string{
		`a(?=l)`: "look", `(?!x)`: "look", `(?<=a)b`: "look", `(?<!a)b`: "look", `(a)\1`: "back-reference", `\k<n>`: "back-reference", `(?>a)`: "atomic",
	} {
		e := w.refused(tool.Unsupported, "grep", args(map[string]any{"pattern": pattern}))
		assert.Contains(t, e.Message, says)
		assert.Equal(t, "pattern", e.Field)
	}
	for _, pattern := range []string{"[", "a**", "(", `\xzz`, strings.Repeat("a", 1001), strings.Repeat("x{1000}", 100)} {
		assert.Equal(t, "pattern", w.refused(tool.Invalid, "grep", args(map[string]any{"pattern": pattern})).Field, "%.20s", pattern)
	}
	assert.Equal(t, "glob", w.refused(tool.Invalid, "grep", `{"pattern":"x","glob":"../**/*"}`).Field)
	for _, more := range []string{`"before":-1`, `"max_matches":0`, `"after":1000`} {
		w.refused(tool.Invalid, "grep", `{"pattern":"x",`+more+`}`)
	}
}

func TestNoPatternTakesLong(t *testing.T) {
	w := newWorld(t)
	w.file("t", strings.Repeat("a", 50_000)+"!\n")
	w.file("long", strings.Repeat("ab ", 2<<20))
	for _, pattern := range []string{"(.*)(.*)(.*)(.*)(.*)x", "(a+)+$", "(a|aa)+$", `(?:.{900})(?:.{900})z`, `\b\w+\b\s+q`} {
		within(t, func() { w.ok("grep", args(map[string]any{"pattern": pattern})) })
	}
}

func TestGrepEndsWithItsCaller(t *testing.T) {
	w := newWorld(t)
	w.file("f", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.tools["grep"].Call(ctx, []byte(`{"pattern":"x"}`))
	assert.Equal(t, tool.Closed, tool.KindOf(err))
	ctx, cancel = context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	_, err = w.tools["glob"].Call(ctx, []byte(`{"pattern":"x"}`))
	assert.Equal(t, tool.Timeout, tool.KindOf(err))
}

// TestGrepAgreesWithAPlainSearch compares every way of searching (literals,
// without case, RE2, line by line) with the standard library on each line.
func TestGrepAgreesWithAPlainSearch(t *testing.T) {
	w := newWorld(t)
	patterns := []string{
		`foo`, `fo+`, `foo|bar`, `(foo|ba)r?`, `^foo`, `foo$`, `^$`, `^`, `o*`, `[a-c]+o`, `[^o]$`, `\bfoo\b`, `\b`, `f.o`, `(?i)FOO`, `(?i)kas`, `(?i:ß)`,
		`\s`, `\S+\s\S`, `[[:upper:]]`, `é`, `.é`, `x{2,3}`, `(?m)^b`, `\Afoo`, `foo\z`, `(?s).f`, `a|^b|c$`, `\x{e9}`, `\d\d`, `[^a]`,
	}
	rapid.Check(t, func(r *rapid.T) {
		pattern := rapid.SampledFrom(patterns).Draw(r, "pattern")
		ignore := rapid.Bool().Draw(r, "ignore_case")
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"foo", "bar", "\n", " ", "é", "K", "xx", "F", "o", "\r\n", "12", "\xff", "ſ", "\n\n", "b", "c"}), 0, 60)
		text := strings.Join(pieces.Draw(r, "text"), "")
		w.file("f", text)
		a := w.ok("grep", args(map[string]any{"pattern": pattern, "ignore_case": ignore}))
		flags := ""
		if ignore {
			flags = "(?i)"
		}
		re := regexp.MustCompile(flags + strings.NewReplacer("$", `\r?$`, `\z`, `\r?\z`).Replace(pattern))
		var lines, columns []any
		for i, line := range bytes.Split([]byte(text), []byte("\n")) {
			if loc := re.FindIndex(line); loc != nil && !(len(line) == 0 && i == strings.Count(text, "\n")) {
				lines = append(lines, float64(i+1))
				columns = append(columns, float64(len([]rune(string(line[:loc[0]])))+1))
			}
		}
		assert.Equal(r, lines, a.each("matches", "line_number"))
		assert.Equal(r, columns, a.each("matches", "column"))
	})
}

func TestGrepReadsLargeFilesBlockByBlock(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	var want []any
	for i := range 120_000 {
		if i%9_973 == 5 {
			fmt.Fprintf(&b, "line %d has the needle\n", i)
			want = append(want, float64(i+1))
		} else {
			fmt.Fprintf(&b, "line %d is as long as lines are\n", i)
		}
	}
	w.file("f", b.String())
	for _, pattern := range []string{"needle", `n[e]{2}d[l-m]e`, `(?i)NEEDLE`, `[m-o]e+d`} {
		a := w.ok("grep", args(map[string]any{"pattern": pattern, "before": 2, "after": 3}))
		assert.Equal(t, want, a.each("matches", "line_number"), pattern)
		for i, m := range want {
			n := int(m.(float64)) - 1
			assert.Equal(t, fmt.Sprintf("line %d is as long as lines are", n-2), a.each("matches", "before")[i].([]any)[0])
			assert.Equal(t, fmt.Sprintf("line %d is as long as lines are", n+3), a.each("matches", "after")[i].([]any)[2])
		}
	}
	w.file("one", strings.Repeat("z", 3<<20)+"needle")
	a := w.ok("grep", `{"pattern":"needle","path":"one"}`)
	require.Len(t, a["matches"], 1)
	assert.Equal(t, float64(3<<20+1), a.each("matches", "column")[0])
	w.file("endless", strings.Repeat("z", 6<<20)+"needle")
	for _, c := range []struct{ path, pattern, notice string }{
		{"endless", "needle", "a file with a line over 4 MiB"},
		{"one", "[m-o]e+d", "a line was too long for this pattern"},
	} {
		a = w.ok("grep", args(map[string]any{"pattern": c.pattern, "path": c.path}))
		assert.Equal(t, true, a["truncated"], c.path)
		assert.Len(t, a["notices"], 1, c.path)
		assert.Contains(t, a["text"], c.notice)
	}
}
