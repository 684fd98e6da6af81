package vfs_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/tool"
)

func edit(name, old, new string, all bool) string {
	return args(map[string]any{"file_path": name, "old_string": old, "new_string": new, "replace_all": all})
}

func TestEditsAreByteExact(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name, text, old, new string
		all                  bool
		want                 string
		n                    float64
	}{
		{"one", "one\ntwo\n", "one", "ONE", false, "ONE\ntwo\n", 1},
		{"all", "old old", "old", "new", true, "new new", 2},
		{"no tail", "x\ny", "x", "z", false, "z\ny", 1},
		{"crlf", "one\r\ntwo\r\n", "two", "2", false, "one\r\n2\r\n", 1},
		{"tail newline", "a\n", "a\n", "a", false, "a", 1},
		{"delete", "abc", "b", "", false, "ac", 1},
		{"literal", "a.*b$\n", "a.*b$", `\1&$1`, false, `\1&$1` + "\n", 1},
		{"unicode", "naïve ☕\n", "☕", "tea", false, "naïve tea\n", 1},
		{"overlapping all", "aaaa", "aa", "b", true, "bb", 2},
		{"grows from its own text", "aa", "a", "aa", true, "aaaa", 2},
	} {
		w.file("e", c.text)
		a := w.ok("edit_file", edit("e", c.old, c.new, c.all))
		assert.Equal(t, c.want, w.content("e"), c.name)
		assert.Equal(t, c.n, a["replacements"], c.name)
	}
}

func TestEditsShowTheirDiff(t *testing.T) {
	w := newWorld(t)
	w.file("e", "one\ntwo\nthree\n")
	a := w.ok("edit_file", edit("e", "two", "2\n2b", false))
	assert.Equal(t, "--- a/e\n+++ b/e\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n", a["diff"])
	assert.Contains(t, a["text"], "+2b")
	w.file("many", strings.Repeat("x\n", 100_000))
	within(t, func() {
		a = w.ok("edit_file", edit("many", "x", "y", true))
		assert.Equal(t, 100_000.0, a["replacements"])
		assert.Less(t, len(a["diff"].(string)), 64<<10)
		assert.Contains(t, a["diff"], "not shown")
	})
	w.file("wide", strings.Repeat("x", 1<<20)+"needle")
	a = w.ok("edit_file", edit("wide", "needle", "pin", false))
	assert.Less(t, len(a["diff"].(string)), 64<<10)
}

func TestEditRefuses(t *testing.T) {
	w := newWorld(t)
	w.file("e", "aba\nb\na\n")
	w.file("aaa", "aaa")
	w.file("bin", "a\xff")
	w.file("bomb", strings.Repeat("a", 40_000))
	w.dir("d")
	assert.Equal(t, "old_string", w.refused(tool.NoMatch, "edit_file", edit("e", "zzz", "x", false)).Field)
	e := w.refused(tool.Ambiguous, "edit_file", edit("e", "a", "x", false))
	assert.Contains(t, e.Message, "3 times, on line 1, 1, 3")
	w.refused(tool.Ambiguous, "edit_file", edit("aaa", "aa", "x", false))
	assert.Equal(t, "old_string", w.refused(tool.Invalid, "edit_file", edit("e", "", "x", false)).Field)
	w.refused(tool.NotFound, "edit_file", edit("missing", "a", "x", false))
	w.refused(tool.IsDir, "edit_file", edit("d", "a", "x", false))
	w.refused(tool.NotText, "edit_file", edit("bin", "a", "b", false))
	assert.Equal(t, "new_string", w.refused(tool.TooLarge, "edit_file", edit("bomb", "a", strings.Repeat("b", 40_000), true)).Field)
	assert.Equal(t, "new_string", w.refused(tool.TooLarge, "edit_file", edit("e", "a", strings.Repeat("b", 48_001), false)).Field)
	w.file("large", strings.Repeat("x", 8<<20+1))
	w.refused(tool.TooLarge, "edit_file", edit("large", "x", "y", false))
	assert.Equal(t, "aba\nb\na\n", w.content("e"))
	assert.Equal(t, "a\xff", w.content("bin"))
	assert.Len(t, w.content("bomb"), 40_000)
}

func TestEditSpeaksOfLineEnds(t *testing.T) {
	w := newWorld(t)
	for _, c := range [][3]string{
		{"a\r\nb\r\n", "a\nb", `the file's lines end in CRLF; write \r\n in old_string`},
		{"a\nb\n", "a\r\nb", `the file's lines end in LF; write \n without \r in old_string`},
		{"a\r\nb\nc\n", "a\nb\nc", `some lines of the file end in CRLF, others in LF`},
		{"a\r\nb\r\n", "a\nc", "read it again and copy the text exactly"},
	} {
		w.file("e", c[0])
		assert.Contains(t, w.refused(tool.NoMatch, "edit_file", edit("e", c[1], "x", false)).Message, c[2], "%q", c)
		assert.Equal(t, c[0], w.content("e"))
	}
	w.file("e", "a\r\nb\r\n")
	assert.Contains(t, w.ok("edit_file", edit("e", "a", "1\n2", false))["notice"], "new_string has lines that end in LF")
	assert.Equal(t, "1\n2\r\nb\r\n", w.content("e"), "as it was given")
	w.file("e", "a\r\nb\r\n")
	assert.Nil(t, w.ok("edit_file", edit("e", "a\r\nb", "1\r\n2", false))["notice"])
}

func TestEditIsReplaceOfStrings(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(r *rapid.T) {
		letters := rapid.StringMatching(`[ab\r\né]{0,40}`)
		text, old, new := letters.Draw(r, "text"), rapid.StringMatching(`[ab\né]{1,3}`).Draw(r, "old"), letters.Draw(r, "new")
		w.file("e", text)
		_, err := w.call("edit_file", edit("e", old, new, true))
		if old == new {
			assert.Equal(r, tool.Invalid, tool.KindOf(err))
			return
		}
		if !strings.Contains(text, old) {
			assert.Equal(r, tool.NoMatch, tool.KindOf(err))
			return
		}
		require.NoError(r, err)
		assert.Equal(r, strings.ReplaceAll(text, old, new), w.content("e"))
	})
}

func FuzzEditsNeverBreakAFile(f *testing.F) {
	f.Add("one\ntwo", "two", "2", false)
	f.Add("a\xffb", "a", "", true)
	shared := newWorld(f)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		w := *shared
		w.TB = t
		w.file("e", text)
		if !utf8.ValidString(old) || !utf8.ValidString(new) {
			return
		}
		if _, err := w.call("edit_file", edit("e", old, new, all)); err != nil {
			require.NotEqual(t, tool.Internal, tool.KindOf(err))
			require.Equal(t, text, w.content("e"))
			return
		}
		n := 1
		if all {
			n = -1
		}
		require.Equal(t, strings.Replace(text, old, new, n), w.content("e"))
	})
}

func TestAnEditThatChangesNothingIsInvalid(t *testing.T) {
	w := newWorld(t)
	w.file("e", "a\n")
	for _, old := range []string{"a", "missing"} {
		assert.Equal(t, "new_string", w.refused(tool.Invalid, "edit_file", edit("e", old, old, true)).Field)
	}
	assert.Equal(t, 1.0, w.version("e"))
}

// TestAnEditThatDoesNotMatchSaysWhy, where the text differs in what a model can't see.
func TestAnEditThatDoesNotMatchSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.file("f", "if a == \u201cb\u201d:\n\treturn\u00a0a - 1\nnext\n")
	for old, says := range map[string]string{
		"if a == \"b\":":              "other blanks, quotation marks or dashes",
		"return a - 1":                "other blanks, quotation marks or dashes",
		"return\u00a0a \u2212 1":      "other blanks, quotation marks or dashes",
		"    return\u00a0a":           "other blanks, quotation marks or dashes",
		"3 | next":                    "begins with the line numbers",
		"     3\tnext\n":              "begins with the line numbers",
		"something that is not there": "copy the text exactly",
	} {
		assert.Contains(t, w.refused(tool.NoMatch, "edit_file", edit("f", old, "x", false)).Message, says, "%q", old)
	}
}

// TestAPathOfAnotherPlaceIsToldFromAMissingFile: of the host, a home directory or the system.
func TestAPathOfAnotherPlaceIsToldFromAMissingFile(t *testing.T) {
	w := newWorld(t)
	for path, says := range map[string]string{
		"/home/me/project/a.py": "the file tools reach no other files", "~/a.py": "the file tools reach no other files", "/etc/passwd": "the file tools reach no other files",
		"file:///workspace/a": "the file tools reach no other files", "/workspace/none": "none does not exist; ls shows", "sub/none": "sub/none does not exist; ls shows",
	} {
		for _, name := range []string{"read_file", "ls"} {
			assert.Contains(t, w.refused(tool.NotFound, name, args(map[string]any{"path": path})).Message, says, "%s %s", name, path)
		}
	}
}
