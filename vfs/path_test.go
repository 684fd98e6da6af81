package vfs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func TestPathsAreReadAsAgentsWriteThem(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/": "", "//": "", "/workspace": "", "workspace/": "", "/workspace/": "",
		"a": "a", "/a/b": "a/b", "/workspace/a": "a", "workspace/a": "a", "/workspacex/y": "workspacex/y",
		"a//b": "a/b", "  q / w.txt ": "  q / w.txt ", "/workspace/notes ": "notes ", "a b/c": "a b/c", "/workspace/workspace/x": "workspace/x",
		"%2e%2e/x": "%2e%2e/x", "$HOME/x": "$HOME/x", "~/x": "~/x", "file:///etc": "file:/etc", "...": "...", "a/": "a",
		strings.Repeat("s", 80): strings.Repeat("s", 80), strings.Repeat("d/", 15) + "f": strings.Repeat("d/", 15) + "f",
		"/workspace/" + strings.Repeat("d/", 15) + "f": strings.Repeat("d/", 15) + "f",
	} {
		got, err := vfs.ASCII.Parse(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
}

func TestBadPathsAreInvalid(t *testing.T) {
	for _, in := range []string{
		".", "..", "./x", "a/./b", "a/../b", "/workspace/../etc/passwd", " .. /x", "   ", "/ ", "a/ /b", " /workspace/x", "straße", "．．/x", "😀", "a\tb", "\x1b[1m", "a\x7fb",
		"ok\x00.png", "a\nb", strings.Repeat("a", 81), strings.Repeat("d/", 17) + "f", strings.Repeat("a/", 40_000) + "b",
	} {
		_, err := vfs.ASCII.Parse(in)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", in)
	}
}

func FuzzPathsNeverClimbAndRoundTrip(f *testing.F) {
	for _, seed := range []string{"a/b", "/workspace/a", "../x", " a / b ", "workspace/workspace/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		rel, err := vfs.ASCII.Parse(in)
		if err != nil {
			require.Equal(t, tool.Invalid, tool.KindOf(err))
			return
		}
		for s := range strings.SplitSeq(rel, "/") {
			require.NotContains(t, []string{".", ".."}, s)
			require.True(t, s != "" || rel == "", "%q gives an empty segment", in)
		}
		again, err := vfs.ASCII.Parse(vfs.ASCII.Display(rel))
		require.NoError(t, err)
		require.Equal(t, rel, again, "what is shown must lead back")
	})
}

// TestEveryToolChecksItsPath calls each with each path it must refuse.
func TestEveryToolChecksItsPath(t *testing.T) {
	w := newWorld(t)
	w.file("keep", "x")
	for _, c := range []struct{ tool, field, more string }{
		{"ls", "path", ""}, {"read_file", "file_path", ""},
		{"write_file", "file_path", `,"content":"x"`}, {"edit_file", "file_path", `,"old_string":"a","new_string":"b"`},
		{"glob", "path", `,"pattern":"*"`}, {"grep", "path", `,"pattern":"x"`}, {"rm", "path", ""},
	} {
		for _, bad := range []string{`"../x"`, `"/workspace/../etc/passwd"`, `"a\u0000b"`, `"stra\u00dfe"`, `"a/./b"`, `["a"]`, `null`} {
			e := w.refused(tool.Invalid, c.tool, `{"`+c.field+`":`+bad+c.more+`}`)
			assert.Equal(t, c.field, e.Field, "%s %s", c.tool, bad)
		}
		w.refused(tool.Invalid, c.tool, `{"`+c.field+`":"keep"`+c.more+`,"root":"/"}`)
	}
	for _, c := range []struct{ tool, field, more string }{
		{"read_file", "file_path", ""}, {"write_file", "file_path", `,"content":"x"`},
		{"edit_file", "file_path", `,"old_string":"a","new_string":"b"`}, {"rm", "path", ""},
	} {
		for _, top := range []string{"", "/", "/workspace", "workspace/"} {
			e := w.refused(tool.Invalid, c.tool, `{"`+c.field+`":"`+top+`"`+c.more+`}`)
			assert.Equal(t, c.field, e.Field)
		}
	}
	assert.Equal(t, "x", w.content("keep"))
}

func TestTheGrammarAnyTakesWhatPeopleCallTheirFiles(t *testing.T) {
	for in, want := range map[string]string{
		"straße": "straße", "/workspace/日本/é.txt": "日本/é.txt", " 😀 /x": " 😀 /x", "．．/x": "．．/x", "👩\u200d💻": "👩\u200d💻", "a b": "a b",
		strings.Repeat("a", 255): strings.Repeat("a", 255), strings.Repeat("é", 127): strings.Repeat("é", 127),
	} {
		got, err := vfs.Any.Parse(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
		again, err := vfs.Any.Parse(vfs.Any.Display(got))
		require.NoError(t, err)
		assert.Equal(t, got, again)
	}
	for _, in := range []string{
		".", "..", "a/../b", "é/../../etc/passwd", "/workspace/../etc/passwd", " .. /x", "a\tb", "\x1b[1m", "a\x7fb", "a\u0085", "ok\x00.png", "a\u202egpj.exe",
		"a\u200bb", "caf\xe9", "a\ufffdb", strings.Repeat("a", 256), strings.Repeat("é", 128), strings.Repeat("é/", 17) + "f", strings.Repeat("é", 4_000),
	} {
		_, err := vfs.Any.Parse(in)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", in)
	}
	assert.Equal(t, `a\u202eb/é/caf\xe9`, vfs.Any.Display("a\u202eb/é/caf\xe9"))
	assert.Equal(t, `\u00e9`, vfs.ASCII.Display("é"))
}

// TestEscapedNamesDiffer also where one has a backslash; those above stay what a path takes.
func TestEscapedNamesDiffer(t *testing.T) {
	assert.Equal(t, `a\n\n`, vfs.Any.Display("a\n\n"))
	assert.Equal(t, `a\\n\n`, vfs.Any.Display("a\\n\n"))
	assert.Equal(t, `a\\\u00e9`, vfs.ASCII.Display(`a\é`))
	assert.Equal(t, `d\n/\u00e9/e\t`, vfs.ASCII.Display(`d\n/é/e\t`))
	assert.Equal(t, `a\nb`, vfs.ASCII.Display(`a\nb`), "a name that a path takes stays")
}

func FuzzPathsOfAnyNeverClimbAndRoundTrip(f *testing.F) {
	for _, seed := range []string{"é/b", "/workspace/日本", "../é", " é / b ", "workspace/workspace/ü", "a\u202eb", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		rel, err := vfs.Any.Parse(in)
		if err != nil {
			require.Equal(t, tool.Invalid, tool.KindOf(err))
			return
		}
		for s := range strings.SplitSeq(rel, "/") {
			require.NotContains(t, []string{".", ".."}, s)
			require.True(t, s != "" || rel == "", "%q gives an empty segment", in)
			require.LessOrEqual(t, len(s), 255)
		}
		again, err := vfs.Any.Parse(vfs.Any.Display(rel))
		require.NoError(t, err)
		require.Equal(t, rel, again, "what is shown must lead back")
	})
}

// TestEveryToolTakesUnicodeUnderAny and shows it as it is; the names that it doesn't
// take are escaped.
func TestEveryToolTakesUnicodeUnderAny(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.Paths = vfs.Any })
	name := strings.Repeat("ü", 127)
	w.ok("write_file", `{"file_path":"straße/`+name+`","content":"eins\n"}`)
	w.file("straße/a\u202eb", "zwei\n")
	assert.Equal(t, "eins\n", w.ok("read_file", `{"file_path":"/workspace/straße/`+name+`"}`)["content"])
	w.ok("edit_file", `{"file_path":"straße/`+name+`","old_string":"eins","new_string":"drei"}`)
	listed := w.ok("ls", `{"path":"straße"}`)["json"]
	assert.Contains(t, listed, `"straße/`+name+`"`)
	assert.Contains(t, listed, `"straße/a\\u202eb"`)
	assert.Contains(t, w.ok("glob", `{"pattern":"stra?e/ü*"}`)["json"], name)
	assert.Contains(t, w.ok("grep", `{"pattern":"drei","glob":"*ü"}`)["json"], `"straße/`+name+`"`)
	w.refused(tool.Invalid, "read_file", `{"file_path":"straße/a\u202eb"}`)
	w.refused(tool.Invalid, "ls", `{"path":"straße/../.."}`)
	w.refused(tool.Invalid, "glob", `{"pattern":"ü\u202e*"}`)
	w.ok("rm", `{"path":"straße"}`)
}
