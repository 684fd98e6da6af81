package profile_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/profile"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// newSet returns a profile over the file tools on a directory, with a shell_execute and processes
// that do nothing.
func newSet(t testing.TB, name string) (*tool.Set, *os.Root) {
	t.Helper()
	root, tmp := open(t), open(t)
	files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp})
	require.NoError(t, err)
	t.Cleanup(func() { _ = files.Close() })
	base := tool.NewSet(files.Tools()...)
	set, err := profile.New(name, base, base)
	require.NoError(t, err)
	return set, root
}

func open(t testing.TB) *os.Root {
	dir, err := os.MkdirTemp("", "profile-")
	require.NoError(t, err)
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { _ = root.Close(); _ = os.RemoveAll(dir) })
	return root
}

func call(t testing.TB, set *tool.Set, name string, args map[string]any) (*tool.Result, error) {
	raw, err := json.Marshal(args)
	require.NoError(t, err)
	return set.Call(context.Background(), name, raw)
}

func patch(t testing.TB, set *tool.Set, lines ...string) error {
	text := strings.Join(append(append([]string{"*** Begin Patch"}, lines...), "*** End Patch"), "\n")
	_, err := call(t, set, "apply_patch", map[string]any{"input": text})
	return err
}

func put(t testing.TB, root *os.Root, name, text string) {
	require.NoError(t, root.WriteFile(name, []byte(text), 0o644))
}

func get(t testing.TB, root *os.Root, name string) string {
	text, err := root.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestPatches(t *testing.T) {
	const abc = "a\nb\nc\n"
	for _, c := range []struct{ name, old, patch, want string }{
		{"one line", abc, "@@\n a\n-b\n+B\n c", "a\nB\nc\n"},
		{"no @@ at the beginning", abc, " a\n-b\n+B", "a\nB\nc\n"},
		{"only lines to remove", abc, "@@\n-a\n-b", "c\n"},
		{"two chunks", "1\n2\n3\n4\n5\n", "@@\n-1\n+one\n@@\n 4\n-5\n+five", "one\n2\n3\n4\nfive\n"},
		{"behind a header", "def f():\n  x\ndef g():\n  x\n", "@@ def g():\n-  x\n+  y", "def f():\n  x\ndef g():\n  y\n"},
		{"behind two headers", "class A:\n f\n x\nclass B:\n f\n x\n", "@@ class B:\n@@  f\n- x\n+ y", "class A:\n f\n x\nclass B:\n f\n y\n"},
		{"the header is the first line of the context", "def g():\n  x\n", "@@ def g():\n def g():\n-  x\n+  y", "def g():\n  y\n"},
		{"the end of the file", "x\ny\nx\n", "@@\n-x\n+z\n*** End of File", "x\ny\nz\n"},
		{"at the end, without a newline", "a\nb", "@@\n+c", "a\nb\nc\n"},
		{"an empty file", "", "@@\n+c", "c\n"},
		{"other blanks at line ends", "a  \nb\t\nc\n", "@@\n a\n-b\n+B", "a  \nB\nc\n"},
		{"other indentation", "\ta\n\tb\n", "@@\n a\n-b\n+\tB", "\ta\n\tB\n"},
		{"carriage returns stay", "a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B", "a\r\nB\r\nc\r\n"},
		{"a line that stands often", strings.Repeat("x\n", 50) + "y\n" + strings.Repeat("x\n", 50), "@@\n y\n-x\n+z", strings.Repeat("x\n", 50) + "y\nz\n" + strings.Repeat("x\n", 49)},
		{"a blank line of the context", "a\n\nb\n", "@@\n a\n\n-b\n+B", "a\n\nB\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", c.old)
			require.NoError(t, patch(t, set, "*** Update File: f", c.patch))
			assert.Equal(t, c.want, get(t, root, "f"))
		})
	}
}

func TestAPatchThatDoesNotFitChangesNothing(t *testing.T) {
	for name, lines := range map[string][]string{
		"a line that is not there": {"*** Add File: new", "+x", "*** Update File: f", "@@", "-nope"},
		"a file that is not there": {"*** Update File: f", "@@", "-a", "+b", "*** Update File: none", "@@", "-a"},
		"a file that is there":     {"*** Update File: f", "@@", "-a", "+b", "*** Add File: g", "+x"},
		"a deletion of nothing":    {"*** Update File: f", "@@", "-a", "+b", "*** Delete File: none"},
		"an escape":                {"*** Add File: new", "+x", "*** Delete File: ../x"},
		"the same file twice":      {"*** Update File: f", "@@", "-a", "+b", "*** Delete File: f"},
		"the same in other words":  {"*** Update File: f", "@@", "-a", "+b", "*** Update File: /workspace/f", "@@", "-a", "+c"},
		"a move onto a file":       {"*** Update File: f", "*** Move to: g", "@@", "-a", "+b"},
		"no operation":             {"hello"},
		"a bad line":               {"*** Update File: f", "@@", "-a", "=b"},
		"a line without +":         {"*** Add File: new", "x"},
		"an end of nothing":        {"*** Update File: f", "*** End of File"},
		"no changes":               {"*** Update File: f"},
		"an empty patch":           {},
	} {
		t.Run(name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", "a\nb")
			put(t, root, "g", "g\n")
			require.Error(t, patch(t, set, lines...))
			assert.Equal(t, "a\nb", get(t, root, "f"))
			assert.Equal(t, "g\n", get(t, root, "g"))
			_, err := root.Stat("new")
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

func TestPatchesAddMoveAndDelete(t *testing.T) {
	set, root := newSet(t, "openai")
	put(t, root, "old", "a\n")
	put(t, root, "gone", "")
	long := "+" + strings.Repeat("é", 60_000)
	require.NoError(t, patch(t, set, "*** Add File: dir/new", long, "*** Update File: old", "*** Move to: moved", "@@", "-a", "+b", "*** Delete File: gone"))
	assert.Len(t, get(t, root, "dir/new"), 120_001)
	assert.Equal(t, "b\n", get(t, root, "moved"))
	for _, name := range []string{"old", "gone"} {
		_, err := root.Stat(name)
		assert.ErrorIs(t, err, os.ErrNotExist)
	}
}

// A diff of two files turns the first into the second.
func TestAPatchOfAnyChangeMakesTheNewFile(t *testing.T) {
	set, root := newSet(t, "openai")
	line := rapid.StringMatching(`[abc]{0,2}`)
	rapid.Check(t, func(rt *rapid.T) {
		old := rapid.SliceOfN(line, 1, 12).Draw(rt, "old")
		from := rapid.IntRange(0, len(old)).Draw(rt, "from")
		to := rapid.IntRange(from, len(old)).Draw(rt, "to")
		now := rapid.SliceOfN(line, 0, 4).Draw(rt, "now")
		lines := []string{"*** Update File: f", "@@"}
		for i, l := range old {
			switch {
			case i == from:
				lines = append(lines, prefixed("+", now)...)
				fallthrough
			case i > from && i < to:
				lines = append(lines, map[bool]string{true: "-", false: " "}[i < to]+l)
			default:
				lines = append(lines, " "+l)
			}
		}
		if from == len(old) {
			lines = append(lines, prefixed("+", now)...)
		}
		put(t, root, "f", strings.Join(old, "\n")+"\n")
		require.NoError(rt, patch(t, set, lines...))
		want := append(append(append([]string{}, old[:from]...), now...), old[to:]...)
		require.Equal(rt, strings.Join(append(want, ""), "\n"), get(t, root, "f"))
	})
}

func prefixed(prefix string, lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, prefix+l)
	}
	return out
}

func FuzzNoPatchEscapesOrPanics(f *testing.F) {
	f.Add("*** Begin Patch\n*** Update File: f\n@@ a\n-b\n+c\n*** End of File\n*** End Patch")
	f.Add("*** Begin Patch\n*** Add File: ../x\n+b\n*** End Patch")
	set, root := newSet(f, "openai")
	f.Fuzz(func(t *testing.T, text string) {
		put(t, root, "f", "a\nb\nc\n")
		_, err := call(t, set, "apply_patch", map[string]any{"input": text})
		assert.NotEqual(t, tool.Internal, tool.KindOf(err), "%v", err)
	})
}

func TestTheEditor(t *testing.T) {
	set, root := newSet(t, "anthropic")
	edit := func(args map[string]any) (string, error) {
		res, err := call(t, set, "str_replace_based_edit_tool", args)
		if err != nil {
			return "", err
		}
		return res.Text, nil
	}
	put(t, root, "f", "a\nb\nb\n")
	for _, c := range []struct {
		name, field string
		kind        tool.Kind
		args        map[string]any
	}{
		{"no text", "file_text", tool.Invalid, map[string]any{"command": "create", "path": "g"}},
		{"no old text", "old_str", tool.Invalid, map[string]any{"command": "str_replace", "path": "f"}},
		{"twice", "old_str", tool.Ambiguous, map[string]any{"command": "str_replace", "path": "f", "old_str": "b"}},
		{"not there", "old_str", tool.NoMatch, map[string]any{"command": "str_replace", "path": "f", "old_str": "z", "new_str": ""}},
		{"no line", "insert_line", tool.Invalid, map[string]any{"command": "insert", "path": "f", "insert_text": "x"}},
		{"beyond", "insert_line", tool.Invalid, map[string]any{"command": "insert", "path": "f", "insert_line": 4, "insert_text": "x"}},
		{"range", "view_range", tool.Invalid, map[string]any{"command": "view", "path": "f", "view_range": []int{3, 2}}},
		{"one number", "view_range", tool.Invalid, map[string]any{"command": "view", "path": "f", "view_range": []int{3}}},
		{"a range of a directory", "view_range", tool.Invalid, map[string]any{"command": "view", "path": "/workspace", "view_range": []int{1, 2}}},
		{"missing file", "path", tool.NotFound, map[string]any{"command": "view", "path": "none"}},
		{"outside", "path", tool.Invalid, map[string]any{"command": "view", "path": "../x"}},
		{"unknown", "command", tool.Invalid, map[string]any{"command": "undo_edit", "path": "f"}},
	} {
		_, err := edit(c.args)
		var e *tool.Error
		require.ErrorAs(t, err, &e, c.name)
		assert.Equal(t, c.kind, e.Kind, "%s: %s", c.name, e)
		assert.Equal(t, c.field, e.Field, "%s: %s", c.name, e)
	}
	_, err := edit(map[string]any{"command": "insert", "path": "f", "insert_line": 2, "insert_text": "x\n"})
	require.NoError(t, err)
	assert.Equal(t, "a\nb\nx\nb\n", get(t, root, "f"))
	text, err := edit(map[string]any{"command": "view", "path": "/workspace/f", "view_range": []int{3, -1}})
	require.NoError(t, err)
	assert.Equal(t, "     3\tx\n     4\tb\n", text)
	_, err = edit(map[string]any{"command": "create", "path": "f", "file_text": "new"})
	require.NoError(t, err)
	assert.Equal(t, "new", get(t, root, "f"))
}

func TestAnUnknownProfileNamesTheKnown(t *testing.T) {
	_, err := profile.New("gemini", tool.NewSet(), nil)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.ErrorContains(t, err, "deepagents")
}

func TestTheOlderNamesStandBesideTheNew(t *testing.T) {
	set, root := newSet(t, "vfs")
	put(t, root, "f", "")
	_, err := call(t, set, "delete_file", map[string]any{"path": "f"})
	require.NoError(t, err)
	res, err := call(t, set, "list_directory", map[string]any{})
	require.NoError(t, err)
	assert.Contains(t, res.Text, "0 entries")
}
