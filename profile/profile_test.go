package profile_test

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
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
		{"a blank line after the file's header", abc, "\n@@\n a\n-b\n+B", "a\nB\nc\n"},
		{"a blank line after @@", abc, "@@\n\n a\n-b\n+B", "a\nB\nc\n"},
		{"a blank line at a chunk's end", abc, "@@\n a\n-b\n+B\n\n@@\n-c\n+C\n", "a\nB\nC\n"},
		{"blank lines at the end, one of which is there", "a\nb\n\nc\n", "@@\n-b\n+B\n\n\n", "a\nB\n\nc\n"},
		{"the blank line that a final newline looks like", "a\nb\n", "@@\n-b\n-\n+c\n+", "a\nc\n"},
		{"blank lines with blanks in them", abc, "  \n@@\n a\n-b\n+B\n   \n", "a\nB\nc\n"},
		{"typographic quotes", "say “hi” ‘there’\nb\n", "@@\n say \"hi\" 'there'\n-b\n+B", "say “hi” ‘there’\nB\n"},
		{"typographic dashes and blanks", "a\u00a0–\u2003b — c\nb\n", "@@\n a - b - c\n-b\n+B", "a\u00a0–\u2003b — c\nB\n"},
		{"typographic signs in the removed line", "it’s\n", "@@\n-it's\n+it is", "it is\n"},
		{"typographic signs in the header", "def “x”:\n a\ndef y:\n a\n", "@@ def \"x\":\n- a\n+ b", "def “x”:\n b\ndef y:\n a\n"},
		{"typographic signs in the patch", "it's\n", "@@\n-it’s\n+it is", "it is\n"},
		{"a blank line that the file lacks, before an added one", "a\n", "@@\n a\n \n+b", "a\n\nb\n"},
		{"blank lines alone that the file lacks", "a\nb\n", "@@\n a\n-b\n+c\n@@\n ", "a\nc\n"},
		{"blank lines alone that the file lacks, before an added one", "a\nb\n", "@@\n a\n b\n@@\n \n+c", "a\nb\n\nc\n"},
		{"the exact line before a similar one", "“x”\n\"x\"\n", "@@\n-\"x\"\n+y", "“x”\ny\n"},
		{"a byte order mark", "\ufeffa\nb\n", "@@\n-a\n+A\n b", "\ufeffA\nb\n"},
		{"a byte order mark before the context", "\ufeffa\nb\n", "@@\n a\n-b\n+B", "\ufeffa\nB\n"},
		{"a byte order mark and nothing else", "\ufeff", "@@\n+a", "\ufeffa\n"},
		{"a header with a blank in front", abc, " @@ a\n-b\n+B", "a\nB\nc\n"},
		{"a context line that looks like a header", "@@ a\nb\n", "@@\n @@ a\n-b\n+B", "@@ a\nB\n"},
		{"a context line that looks like a file's header", "*** Delete File: f\nb\n", "@@\n *** Delete File: f\n-b\n+B", "*** Delete File: f\nB\n"},
		{"line numbers of a unified diff", abc, "@@ -1,3 +1,3 @@ x\n a\n-b\n+B", "a\nB\nc\n"},
		{"an end of file that is not there", "x\ny\n", "@@\n-x\n+z\n*** End of File", "z\ny\n"},
		{"an end of file with a blank in front", "x\nx\n", "@@\n-x\n+z\n *** End of File ", "x\nz\n"},
		{"a long file", strings.Repeat("é\n", 60_000), "@@\n-é\n+" + strings.Repeat("e", 50_000), strings.Repeat("e", 50_000) + "\n" + strings.Repeat("é\n", 59_999)},
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
		"a line that is not there":     {"*** Add File: new", "+x", "*** Update File: f", "@@", "-nope"},
		"a file that is not there":     {"*** Update File: f", "@@", "-a", "+b", "*** Update File: none", "@@", "-a"},
		"a deletion of nothing":        {"*** Update File: f", "@@", "-a", "+b", "*** Delete File: none"},
		"an escape":                    {"*** Add File: new", "+x", "*** Delete File: ../x"},
		"a file that was deleted":      {"*** Delete File: f", "*** Update File: f", "@@", "-a", "+b"},
		"a file that was moved":        {"*** Update File: f", "*** Move to: new", "*** Update File: f", "@@", "-a", "+b"},
		"a directory":                  {"*** Update File: f", "@@", "-a", "+b", "*** Delete File: dir"},
		"an addition over a directory": {"*** Update File: f", "@@", "-a", "+b", "*** Add File: dir", "+x"},
		"a move onto a directory":      {"*** Update File: f", "*** Move to: dir", "@@", "-a", "+b"},
		"a misfit after replacements":  {"*** Add File: g", "+x", "*** Update File: f", "*** Move to: g", "*** Update File: g", "@@", "-none"},
		"a move of a directory":        {"*** Update File: dir", "*** Move to: new"},
		"a text among the lines":       {"*** Add File: new", "+x", "", "text"},
		"the same in other words":      {"*** Update File: f", "@@", "-a", "+b", "*** Update File: /workspace/f", "@@", "-a", "+c"},
		"no operation":                 {"hello"},
		"a bad line":                   {"*** Update File: f", "@@", "-a", "=b"},
		"a line without +":             {"*** Add File: new", "x"},
		"an end of nothing":            {"*** Update File: f", "*** End of File"},
		"no changes":                   {"*** Update File: f"},
		"an empty patch":               {},
	} {
		t.Run(name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", "a\nb")
			put(t, root, "g", "g\n")
			require.NoError(t, root.Mkdir("dir", 0o755))
			require.Error(t, patch(t, set, lines...))
			assert.Equal(t, "a\nb", get(t, root, "f"))
			assert.Equal(t, "g\n", get(t, root, "g"))
			_, err := root.Stat("new")
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// TestAPatchReplacesAFileThatIsThere, as Codex's parser does, and says so.
func TestAPatchReplacesAFileThatIsThere(t *testing.T) {
	for name, c := range map[string]struct{ patch, want, said string }{
		"added":               {"*** Add File: f\n+new", "bin=\xff\x00 f=new\n g=g\n", "A f (replaced"},
		"added, empty":        {"*** Add File: f", "bin=\xff\x00 f= g=g\n", "A f (replaced"},
		"added over bytes":    {"*** Add File: bin\n+new", "bin=new\n f=a\nb g=g\n", "A bin (replaced"},
		"added twice":         {"*** Add File: n\n+1\n*** Add File: n\n+2", "bin=\xff\x00 f=a\nb g=g\n n=2\n", "A n (replaced"},
		"updated and added":   {"*** Update File: f\n@@\n-a\n+c\n*** Add File: f\n+new", "bin=\xff\x00 f=new\n g=g\n", "A f (replaced"},
		"added and updated":   {"*** Add File: f\n+new\n*** Update File: f\n@@\n-new\n+newer", "bin=\xff\x00 f=newer\n g=g\n", "A f (replaced"},
		"moved":               {"*** Update File: f\n*** Move to: g\n@@\n-a\n+c", "bin=\xff\x00 g=c\nb", "f -> g (replaced"},
		"moved onto bytes":    {"*** Update File: f\n*** Move to: bin", "bin=a\nb g=g\n", "f -> bin (replaced"},
		"moved onto an added": {"*** Add File: n\n+1\n*** Update File: f\n*** Move to: n", "bin=\xff\x00 g=g\n n=a\nb", "f -> n (replaced"},
		"both moved":          {"*** Update File: f\n*** Move to: n\n*** Update File: g\n*** Move to: n", "bin=\xff\x00 n=g\n", "g -> n (replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", "a\nb")
			put(t, root, "g", "g\n")
			put(t, root, "bin", "\xff\x00")
			require.NoError(t, root.Chmod("f", 0o755))
			res, err := call(t, set, "apply_patch", map[string]any{"input": "*** Begin Patch\n" + c.patch + "\n*** End Patch"})
			require.NoError(t, err)
			assert.Contains(t, res.Text, c.said)
			var is []string
			for _, name := range namesOf(t, root) {
				is = append(is, name+"="+get(t, root, name))
			}
			assert.Equal(t, c.want, strings.Join(is, " "))
			if info, err := root.Stat("f"); err == nil {
				assert.Equal(t, fs.FileMode(0o755), info.Mode(), "an added file keeps the mode of the one that it replaces")
			}
		})
	}
}

// TestAPatchReplacesNothingThatItsClientMustReadBefore, with the option ReadBeforeWrite.
func TestAPatchReplacesNothingThatItsClientMustReadBefore(t *testing.T) {
	for name, part := range map[string]string{
		"an addition": "*** Add File: f\n+new", "a move": "*** Update File: mine\n*** Move to: f", "bytes": "*** Add File: bin\n+new", "a move onto bytes": "*** Update File: mine\n*** Move to: bin",
	} {
		t.Run(name, func(t *testing.T) {
			root, tmp := open(t), open(t)
			files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp, ReadBeforeWrite: true})
			require.NoError(t, err)
			t.Cleanup(func() { _ = files.Close() })
			base := tool.NewSet(files.Tools()...)
			set, err := profile.New("openai", base, base)
			require.NoError(t, err)
			put(t, root, "f", "another client's\n")
			put(t, root, "bin", "\xff")
			put(t, root, "mine", "mine\n")
			err = patch(t, set, part)
			assert.Equal(t, tool.Conflict, tool.KindOf(err), "%v", err)
			assert.Equal(t, "another client's\n", get(t, root, "f"))
			assert.Equal(t, "\xff", get(t, root, "bin"))
			assert.Equal(t, "mine\n", get(t, root, "mine"))
			require.NoError(t, patch(t, set, "*** Add File: new\n+1\n*** Add File: new\n+2", "*** Update File: f\n@@\n+a line"), "what it has made, and what it has found by its lines")
			require.NoError(t, patch(t, set, "*** Add File: f\n+new"))
		})
	}
}

func namesOf(t *testing.T, root *os.Root) (names []string) {
	t.Helper()
	all, err := fs.ReadDir(root.FS(), ".")
	require.NoError(t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
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

func TestPatchesAreTolerant(t *testing.T) {
	for _, c := range []struct{ name, patch string }{
		{"blank lines between the parts", "*** Begin Patch\n\n*** Add File: new\n+n\n\n\n*** Update File: f\n@@\n-a\n+b\n\n*** Delete File: gone\n\n*** End Patch"},
		{"headers with blanks in front", "  *** Begin Patch\n *** Add File: new \n+n\n  *** Update File: f\n@@\n-a\n+b\n *** Delete File: gone\n *** End Patch  "},
		{"an environment", "*** Begin Patch\n*** Environment ID: remote-1\n*** Add File: new\n+n\n*** Update File: f\n@@\n-a\n+b\n*** Delete File: gone\n*** End Patch"},
		{"a here-document", "<<'EOF'\n*** Begin Patch\n*** Add File: new\n+n\n*** Update File: f\n@@\n-a\n+b\n*** Delete File: gone\n*** End Patch\nEOF\n"},
		{"a command", "apply_patch <<PATCH\n*** Begin Patch\n*** Add File: new\n+n\n*** Update File: f\n@@\n-a\n+b\n*** Delete File: gone\n*** End Patch\nPATCH"},
		{"carriage returns", "*** Begin Patch\r\n*** Add File: new\r\n+n\r\n*** Update File: f\r\n@@\r\n-a\r\n+b\r\n*** Delete File: gone\r\n*** End Patch\r\n"},
		{"a byte order mark", "\ufeff*** Begin Patch\n*** Add File: new\n+n\n*** Update File: f\n@@\n-a\n+b\n*** Delete File: gone\n*** End Patch"},
		{"paths from here", "*** Begin Patch\n*** Add File: ./new\n+n\n*** Update File: /workspace/f\n@@\n-a\n+b\n*** Delete File: .//gone\n*** End Patch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", "a\n")
			put(t, root, "gone", "")
			_, err := call(t, set, "apply_patch", map[string]any{"input": c.patch})
			require.NoError(t, err)
			assert.Equal(t, "n\n", get(t, root, "new"))
			assert.Equal(t, "b\n", get(t, root, "f"))
			_, err = root.Stat("gone")
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
	set, root := newSet(t, "openai")
	require.NoError(t, patch(t, set, "*** Add File: new", "+a", "", "+b", ""))
	assert.Equal(t, "a\n\nb\n", get(t, root, "new"), "a line that lost its plus")
}

func TestPartsOfOneFileAreMadeInOrder(t *testing.T) {
	for _, c := range []struct{ name, patch, files string }{
		{"deleted and added", "*** Delete File: f\n*** Add File: f\n+new", "f=new\n"},
		{"deleted, added and updated", "*** Delete File: f\n*** Add File: f\n+x\n+y\n*** Update File: f\n@@\n-x\n+z", "f=z\ny\n"},
		{"deleted, added and moved", "*** Delete File: f\n*** Add File: f\n+x\n*** Update File: f\n*** Move to: d/g", "d/g=x\n"},
		{"updated twice", "*** Update File: f\n@@\n-a\n+b\n*** Update File: f\n@@\n-b\n+c", "f=c\n"},
		{"updated twice, in two forms of its path", "*** Update File: f\n@@\n-a\n+b\n*** Update File: /workspace//f\n@@\n+d", "f=b\nd\n"},
		{"added and updated", "*** Add File: n\n+x\n*** Update File: n\n@@\n-x\n+y", "f=a\nn=y\n"},
		{"added, updated and moved", "*** Add File: n\n+x\n*** Update File: n\n*** Move to: m\n@@\n-x\n+y", "f=a\nm=y\n"},
		{"updated and deleted", "*** Update File: f\n@@\n-a\n+b\n*** Delete File: f", ""},
		{"added and deleted", "*** Add File: n\n+x\n*** Delete File: n", "f=a\n"},
		{"moved and updated", "*** Update File: f\n*** Move to: g\n*** Update File: g\n@@\n-a\n+b", "g=b\n"},
		{"updated and moved", "*** Update File: f\n@@\n-a\n+b\n*** Update File: f\n*** Move to: g\n@@\n-b\n+c", "g=c\n"},
		{"moved away and added", "*** Update File: f\n*** Move to: g\n*** Add File: f\n+new", "f=new\ng=a\n"},
		{"moved there and back", "*** Update File: f\n*** Move to: g\n*** Update File: g\n*** Move to: f", "f=a\n"},
		{"moved onto a deleted file", "*** Add File: n\n+x\n*** Delete File: f\n*** Update File: n\n*** Move to: f", "f=x\n"},
		{"moved onto itself", "*** Update File: f\n*** Move to: ./f\n@@\n-a\n+b", "f=b\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, root := newSet(t, "openai")
			put(t, root, "f", "a\n")
			require.NoError(t, patch(t, set, c.patch))
			var got []string
			require.NoError(t, fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					got = append(got, path+"="+get(t, root, path))
				}
				return err
			}))
			assert.Equal(t, c.files, strings.Join(got, ""))
		})
	}
}

func TestMovesKeepWhatTheFileIs(t *testing.T) {
	set, root := newSet(t, "openai")
	require.NoError(t, root.WriteFile("run.sh", []byte("a\n"), 0o755))
	require.NoError(t, root.WriteFile("data", []byte("\xff\x00"), 0o755))
	require.NoError(t, root.Symlink("run.sh", "link"))
	require.NoError(t, root.Symlink("/etc/passwd", "out"))
	require.NoError(t, patch(t, set, "*** Update File: run.sh", "*** Move to: bin/run", "@@", "-a", "+b", "*** Update File: data", "*** Move to: bin/data",
		"*** Update File: link", "*** Move to: bin/link", "*** Update File: out", "*** Move to: bin/out"))
	assert.Equal(t, "b\n", get(t, root, "bin/run"))
	assert.Equal(t, "\xff\x00", get(t, root, "bin/data"))
	for _, name := range []string{"bin/run", "bin/data"} {
		info, err := root.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o755), info.Mode(), name)
	}
	for name, want := range map[string]string{"bin/link": "run.sh", "bin/out": "/etc/passwd"} {
		text, err := root.Readlink(name)
		require.NoError(t, err)
		assert.Equal(t, want, text)
	}
	require.NoError(t, patch(t, set, "*** Delete File: bin/out", "*** Delete File: bin/data"))
}

// If a step fails, the earlier ones are undone.
func TestAPatchThatFailsInTheMiddleIsUndone(t *testing.T) {
	for _, fails := range []string{"edit_file", "write_file", "move_file"} {
		root, tmp := open(t), open(t)
		files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp})
		require.NoError(t, err)
		t.Cleanup(func() { _ = files.Close() })
		base := tool.NewSet(files.Tools()...)
		calls := 0
		set, err := profile.New("openai", base, profile.CallerFunc(func(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
			if name == fails {
				if calls++; calls == 2 {
					return nil, tool.Errorf(tool.NoSpace, "the disk is full")
				}
			}
			return base.Call(ctx, name, raw)
		}))
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			put(t, root, name, name+"\n")
		}
		err = patch(t, set, "*** Update File: a", "@@", "-a", "+x", "*** Update File: b", "*** Move to: moved", "@@", "-b", "+x", "*** Add File: new", "+x", "*** Add File: other", "+x",
			"*** Update File: c", "*** Move to: too", "*** Delete File: d", "*** Delete File: e", "*** Add File: e", "+x")
		assert.Equal(t, tool.NoSpace, tool.KindOf(err), fails)
		entries, err := fs.ReadDir(root.FS(), ".")
		require.NoError(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
			assert.Equal(t, e.Name()+"\n", get(t, root, e.Name()), fails)
		}
		assert.Equal(t, []string{"a", "b", "c", "d", "e"}, names, fails)
	}
}

// Messages of wisbox's own tools name parameters and tools that a profile may not have.
func TestErrorsNameOnlyWhatTheProfileHas(t *testing.T) {
	for name, calls := range map[string][]struct {
		tool string
		args map[string]any
	}{
		"openai": {
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: binary\n@@\n-a\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: none\n@@\n-a\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: huge\n@@\n-a\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: longline\n@@\n-a\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Add File: dir\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Add File: dangling\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Add File: a/../b\n+b\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Delete File: dir\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: f\n*** Move to: f/x\n*** End Patch"}},
			{"apply_patch", map[string]any{"input": "*** Begin Patch\n*** Update File: f\n*** Move to: out/x\n*** End Patch"}},
		},
		"anthropic": {
			{"str_replace_based_edit_tool", map[string]any{"command": "view", "path": "binary"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "view", "path": "none"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "view", "path": "out"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "create", "path": "dir", "file_text": "x"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "create", "path": "dangling", "file_text": "x"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "create", "path": "long", "file_text": strings.Repeat("x", 50_000)}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "binary", "old_str": "a", "new_str": "b"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "f", "old_str": "zz", "new_str": "b"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "f", "old_str": "a", "new_str": "a"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "f", "old_str": "", "new_str": "a"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "twice", "old_str": "a", "new_str": "b"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "str_replace", "path": "f", "old_str": strings.Repeat("x", 50_000), "new_str": "b"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "insert", "path": "binary", "insert_line": 0, "insert_text": "b"}},
			{"str_replace_based_edit_tool", map[string]any{"command": "insert", "path": "longline", "insert_line": 0, "insert_text": "b"}},
		},
		"deepagents": {
			{"write_file", map[string]any{"file_path": "f", "content": "x"}}, {"write_file", map[string]any{"file_path": "dir", "content": "x"}},
			{"write_file", map[string]any{"file_path": "new", "content": strings.Repeat("x", 50_000)}}, {"edit_file", map[string]any{"file_path": "binary", "old_string": "a", "new_string": "b"}},
		},
	} {
		set, root := newSet(t, name)
		put(t, root, "f", "a\n")
		put(t, root, "twice", "a\na\n")
		put(t, root, "binary", "\xff\x00")
		put(t, root, "longline", strings.Repeat("x", 300<<10))
		put(t, root, "huge", strings.Repeat(strings.Repeat("x", 127)+"\n", 9<<13))
		require.NoError(t, root.Mkdir("dir", 0o755))
		require.NoError(t, root.Symlink("none", "dangling"))
		require.NoError(t, root.Symlink("/etc", "out"))
		known := map[string]bool{}
		for _, listed := range set.Tools() {
			known[listed.Name] = true
			for parameter := range listed.Input.Properties {
				known[parameter] = true
			}
		}
		for _, c := range calls {
			_, err := call(t, set, c.tool, c.args)
			var e *tool.Error
			if !assert.ErrorAs(t, err, &e, "%s %.100v", name, c.args) {
				continue
			}
			if e.Field != "" {
				assert.True(t, known[e.Field], "%s: the field of %s", name, e)
			}
			for _, word := range regexp.MustCompile(`[a-z_0-9]+`).FindAllString(e.Message, -1) {
				switch word {
				case "read_file", "write_file", "edit_file", "move_file", "shell_execute", "ls", "rm", "grep", "glob", "file_path", "old_string", "new_string", "replace_all", "content", "mode", "encoding",
					"base64", "offset", "limit", "allow_missing", "append", "overwrite":
					assert.True(t, known[word], "%s has no %s: %s", name, word, e)
				}
			}
		}
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

func TestTheEditorKeepsLineEnds(t *testing.T) {
	set, root := newSet(t, "anthropic")
	for _, c := range []struct {
		text string
		args map[string]any
		want string
	}{
		{"a\r\nb\r\n", map[string]any{"command": "insert", "insert_line": 1, "insert_text": "x\ny"}, "a\r\nx\r\ny\r\nb\r\n"},
		{"a\r\nb\r\n", map[string]any{"command": "insert", "insert_line": 2, "insert_text": "x\n"}, "a\r\nb\r\nx\r\n"},
		{"a\r\nb", map[string]any{"command": "insert", "insert_line": 2, "insert_text": "x\ny\n"}, "a\r\nb\r\nx\r\ny"},
		{"a\r\nb\r\n", map[string]any{"command": "insert", "insert_line": 0, "insert_text": "x\r\n"}, "x\r\na\r\nb\r\n"},
		{"a\nb\n", map[string]any{"command": "insert", "insert_line": 1, "insert_text": "x"}, "a\nx\nb\n"},
		{"a\r\nb\n", map[string]any{"command": "insert", "insert_line": 1, "insert_text": "x"}, "a\r\nx\nb\n"},
		{"a\r\nb\r\nc\r\n", map[string]any{"command": "str_replace", "old_str": "a\nb", "new_str": "1\n2\n3"}, "1\r\n2\r\n3\r\nc\r\n"},
		{"a\r\nb\r\n", map[string]any{"command": "str_replace", "old_str": "a", "new_str": "1\n2"}, "1\r\n2\r\nb\r\n"},
		{"a\nb\n", map[string]any{"command": "str_replace", "old_str": "a\nb", "new_str": "c"}, "c\n"},
	} {
		put(t, root, "f", c.text)
		c.args["path"] = "f"
		_, err := call(t, set, "str_replace_based_edit_tool", c.args)
		require.NoError(t, err, "%q", c)
		assert.Equal(t, c.want, get(t, root, "f"), "%q", c)
	}
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
