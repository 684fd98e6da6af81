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
		"": "", "/": "", "   ": "", "//": "", "/workspace": "", "workspace/": "", "/workspace/": "",
		"a": "a", "/a/b": "a/b", "/workspace/a": "a", "workspace/a": "a", "/workspacex/y": "workspacex/y",
		"a//b": "a/b", "  q / w.txt ": "q/w.txt", "a b/c": "a b/c", "/workspace/workspace/x": "workspace/x",
		"%2e%2e/x": "%2e%2e/x", "$HOME/x": "$HOME/x", "~/x": "~/x", "file:///etc": "file:/etc", "...": "...", "a/": "a",
		strings.Repeat("s", 80): strings.Repeat("s", 80), strings.Repeat("d/", 15) + "f": strings.Repeat("d/", 15) + "f",
		"/workspace/" + strings.Repeat("d/", 15) + "f": strings.Repeat("d/", 15) + "f",
	} {
		got, err := vfs.ParsePath(in)
		require.NoError(t, err, in)
		assert.Equal(t, want, got, in)
	}
}

func TestBadPathsAreInvalid(t *testing.T) {
	for _, in := range []string{
		".", "..", "./x", "a/./b", "a/../b", "/workspace/../etc/passwd", " .. /x", "straße", "．．/x", "😀", "a\tb", "\x1b[1m", "a\x7fb",
		"ok\x00.png", "a\nb", strings.Repeat("a", 81), strings.Repeat("d/", 17) + "f", strings.Repeat("a/", 40_000) + "b",
	} {
		_, err := vfs.ParsePath(in)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), "%q", in)
	}
}

func FuzzPathsNeverClimbAndRoundTrip(f *testing.F) {
	for _, seed := range []string{"a/b", "/workspace/a", "../x", " a / b ", "workspace/workspace/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		rel, err := vfs.ParsePath(in)
		if err != nil {
			require.Equal(t, tool.Invalid, tool.KindOf(err))
			return
		}
		for s := range strings.SplitSeq(rel, "/") {
			require.NotContains(t, []string{".", ".."}, s)
			require.True(t, s != "" || rel == "", "%q gives an empty segment", in)
		}
		again, err := vfs.ParsePath(vfs.Display(rel))
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
		for _, top := range []string{"", "/", "   ", "/workspace", "workspace/"} {
			e := w.refused(tool.Invalid, c.tool, `{"`+c.field+`":"`+top+`"`+c.more+`}`)
			assert.Equal(t, c.field, e.Field)
		}
	}
	assert.Equal(t, "x", w.content("keep"))
}
