package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func TestWriteModes(t *testing.T) {
	w := newWorld(t)
	a := w.ok("write_file", `{"file_path":"a/b/c","content":"one"}`)
	assert.Equal(t, "a/b/c", a["path"])
	assert.Equal(t, true, a["created"])
	assert.Equal(t, 1.0, a["version"])
	assert.Equal(t, 3.0, a["size_bytes"])
	assert.Equal(t, "create", a["mode"])
	e := w.refused(tool.Exists, "write_file", `{"file_path":"a/b/c","content":"two"}`)
	assert.Equal(t, "file_path", e.Field)
	a = w.ok("write_file", `{"file_path":"a/b/c","content":"two","mode":"append"}`)
	assert.Equal(t, false, a["created"])
	assert.Equal(t, 6.0, a["size_bytes"])
	assert.Equal(t, "onetwo", w.content("a/b/c"))
	a = w.ok("write_file", `{"file_path":"a/b/c","content":"","mode":"overwrite"}`)
	assert.Equal(t, 3.0, a["version"])
	assert.Equal(t, "", w.content("a/b/c"))
	for _, mode := range []string{"overwrite", "append"} {
		w.refused(tool.NotFound, "write_file", `{"file_path":"missing","content":"x","mode":"`+mode+`"}`)
	}
	assert.Equal(t, "mode", w.refused(tool.Invalid, "write_file", `{"file_path":"n","content":"x","mode":"truncate"}`).Field)
	assert.NoFileExists(t, w.at("missing"))
}

func TestWriteSizes(t *testing.T) {
	w := newWorld(t)
	write := func(name, content, more string) string {
		return args(map[string]any{"file_path": name, "content": content, "encoding": more})
	}
	assert.Equal(t, 48_000.0, w.ok("write_file", write("max", strings.Repeat("x", 48_000), "utf-8"))["size_bytes"])
	assert.Equal(t, 96_000.0, w.ok("write_file", write("chars", strings.Repeat("é", 48_000), "utf-8"))["size_bytes"])
	assert.Equal(t, "content", w.refused(tool.TooLarge, "write_file", write("over", strings.Repeat("x", 48_001), "utf-8")).Field)
	w.refused(tool.TooLarge, "write_file", write("flood", strings.Repeat("x", 20_000_000), "utf-8"))
	assert.Equal(t, 48_000.0, w.ok("write_file", write("raw", strings.Repeat("AAAA", 16_000), "base64"))["size_bytes"])
	w.refused(tool.TooLarge, "write_file", write("rawover", strings.Repeat("AAAA", 16_001), "base64"))
	w.refused(tool.TooLarge, "write_file", write("rawflood", strings.Repeat("AAAA", 500_000), "base64"))
	assert.Equal(t, "content", w.refused(tool.Invalid, "write_file", write("bad", "???", "base64")).Field)
	w.ok("write_file", write("bytes", "//4AAQ==", "base64"))
	assert.Equal(t, "\xff\xfe\x00\x01", w.content("bytes"))
	for _, name := range []string{"over", "flood", "rawover", "rawflood", "bad"} {
		assert.NoFileExists(t, w.at(name))
	}
}

func TestWriteMeetsWhatIsThere(t *testing.T) {
	w := newWorld(t)
	w.dir("d")
	w.fifo("p")
	w.file("f", "x")
	w.link(w.outside+"/created", "out")
	w.link(w.outside+"/leak.txt", "leak")
	w.link("nothere", "dangling")
	w.link(w.outside, "outdir")
	for _, name := range []string{"d", "p", "f", "out", "leak", "dangling"} {
		w.refused(tool.Exists, "write_file", `{"file_path":"`+name+`","content":"pwned"}`)
	}
	within(t, func() {
		for name, kind := range map[string]tool.Kind{
			"d": tool.IsDir, "p": tool.NotRegular, "out": tool.Escape, "leak": tool.Escape, "dangling": tool.NotFound, "outdir": tool.Escape, "outdir/leak.txt": tool.Escape,
		} {
			for _, mode := range []string{"overwrite", "append"} {
				w.refused(kind, "write_file", `{"file_path":"`+name+`","content":"pwned","mode":"`+mode+`"}`)
			}
		}
		w.refused(tool.Escape, "write_file", `{"file_path":"outdir/n1/n2/created","content":"pwned"}`)
		w.refused(tool.NotDir, "write_file", `{"file_path":"f/x","content":"pwned"}`)
		w.refused(tool.NotDir, "write_file", `{"file_path":"f/x/y","content":"pwned"}`)
		w.refused(tool.NotFound, "write_file", `{"file_path":"dangling/x","content":"pwned"}`)
	})
	assert.NoFileExists(t, w.at("nothere"))
}

func TestWriteThroughALinkInsideChangesItsTarget(t *testing.T) {
	w := newWorld(t)
	w.file("real/t", "old")
	w.link("real/t", "l")
	w.link("/workspace/real", "d")
	w.ok("write_file", `{"file_path":"l","content":"new","mode":"overwrite"}`)
	w.ok("write_file", `{"file_path":"d/t","content":"er","mode":"append"}`)
	w.ok("edit_file", `{"file_path":"l","old_string":"newer","new_string":"newest"}`)
	assert.Equal(t, "newest", w.content("real/t"))
	info, err := os.Lstat(w.at("l"))
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink)
	assert.Equal(t, 4.0, w.ok("read_file", `{"file_path":"real/t"}`)["version"], "one file has one number, whatever its names")
	w.ok("write_file", `{"file_path":"d/made","content":"x"}`)
	assert.Equal(t, "x", w.content("real/made"))
}

func TestModeBitsStayAndSetIDDoesNot(t *testing.T) {
	w := newWorld(t)
	w.file("run", "#!/bin/sh\necho 1\n")
	require.NoError(t, os.Chmod(w.at("run"), 0o755|os.ModeSetuid))
	w.ok("write_file", `{"file_path":"run","content":"#!/bin/sh\necho 2\n","mode":"overwrite"}`)
	w.ok("edit_file", `{"file_path":"run","old_string":"2","new_string":"3"}`)
	info, err := os.Stat(w.at("run"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	w.ok("write_file", `{"file_path":"sub/dir/new","content":"x"}`)
	for name, mode := range map[string]os.FileMode{"sub/dir/new": 0o644, "sub/dir": os.ModeDir | 0o755, "sub": os.ModeDir | 0o755} {
		info, err := os.Stat(w.at(name))
		require.NoError(t, err)
		assert.Equal(t, mode, info.Mode(), name)
	}
}

func TestWhatIsMadeHasItsOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives files away")
	}
	w := newWorld(t, func(o *vfs.Options) { o.Owner = &sandbox.Owner{UID: 101_000, GID: 101_001} })
	w.file("old", "x")
	w.ok("write_file", `{"file_path":"a/b/f","content":"x"}`)
	w.ok("edit_file", `{"file_path":"old","old_string":"x","new_string":"y"}`)
	for _, name := range []string{"a", "a/b", "a/b/f", "old"} {
		uid, gid := owner(t, w.at(name))
		assert.Equal(t, [2]uint32{101_000, 101_001}, [2]uint32{uid, gid}, name)
	}
}

// TestHardLinksAreNotWrittenThrough by an overwrite, which says so. An append and an edit change the file
// under all of its names.
func TestHardLinksAreNotWrittenThrough(t *testing.T) {
	w := newWorld(t)
	w.file("a", "old")
	require.NoError(t, os.Link(w.at("a"), w.at("b")))
	got := w.ok("write_file", `{"file_path":"a","content":"new","mode":"overwrite"}`)
	assert.Equal(t, "old", w.content("b"))
	assert.Equal(t, "the file had 2 names (hard links); the others still have the old content", got["notice"])
	got = w.ok("write_file", `{"file_path":"a","content":"newer","mode":"overwrite"}`)
	assert.NotContains(t, got, "notice")

	require.NoError(t, os.Remove(w.at("b")))
	require.NoError(t, os.Link(w.at("a"), w.at("b")))
	w.ok("edit_file", `{"file_path":"a","old_string":"newer","new_string":"edited"}`)
	w.ok("write_file", `{"file_path":"b","content":"!","mode":"append"}`)
	assert.Equal(t, "edited!", w.content("a"))
	assert.Equal(t, "edited!", w.content("b"))
	w.ok("edit_file", `{"file_path":"b","old_string":"edited!","new_string":"x"}`)
	assert.Equal(t, "x", w.content("a"))
}

// TestAnAppendDoesNotTakeAFileAwayFromItsWriter: a program that appends to the same file loses no line.
func TestAnAppendDoesNotTakeAFileAwayFromItsWriter(t *testing.T) {
	w := newWorld(t)
	w.file("log", "")
	program, err := os.OpenFile(w.at("log"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer program.Close()
	const lines = 200
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range lines {
			_, err := fmt.Fprintf(program, "program %d\n", i)
			assert.NoError(t, err)
		}
	})
	for i := range lines {
		w.ok("write_file", fmt.Sprintf(`{"file_path":"log","content":"tool %d\n","mode":"append"}`, i))
	}
	wg.Wait()
	got := strings.Split(strings.TrimSpace(w.content("log")), "\n")
	assert.Len(t, got, 2*lines)
}

// TestAFileThatCannotBeOpenedForWritingIsExtended all the same, as a new file.
func TestAFileThatCannotBeOpenedForWritingIsExtended(t *testing.T) {
	w := newWorld(t)
	program := filepath.Join(w.path, "program")
	raw, err := os.ReadFile("/bin/sleep")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, raw, 0o755))
	running := exec.Command(program, "60")
	require.NoError(t, running.Start())
	defer func() { _ = running.Process.Kill(); _ = running.Wait() }()
	w.ok("write_file", `{"file_path":"program","content":"tail","mode":"append"}`)
	assert.True(t, strings.HasSuffix(w.content("program"), "tail"))
}

// TestEditsKeepTheFileWhileProgramsRun, so that they see the change; otherwise the file is replaced.
func TestEditsKeepTheFileWhileProgramsRun(t *testing.T) {
	w := newWorld(t)
	busy := true
	w.fs.SetInPlace(func() bool { return busy })
	for _, c := range []struct{ old, now string }{{"b", "longer than b"}, {"longer than b", ""}, {"a", "A"}, {"c", "cc\ncc"}} {
		w.file("f", "a\nb\nlonger than b\nc\n")
		before := inode(t, w.at("f"))
		program, err := os.Open(w.at("f"))
		require.NoError(t, err)
		want := strings.ReplaceAll("a\nb\nlonger than b\nc\n", c.old, c.now)
		w.ok("edit_file", args(map[string]any{"file_path": "f", "old_string": c.old, "new_string": c.now, "replace_all": true}))
		assert.Equal(t, want, w.content("f"))
		assert.Equal(t, before, inode(t, w.at("f")))
		seen, err := io.ReadAll(program)
		require.NoError(t, err)
		assert.Equal(t, want, string(seen))
		require.NoError(t, program.Close())
	}
	busy = false
	before := inode(t, w.at("f"))
	w.ok("edit_file", `{"file_path":"f","old_string":"a\n","new_string":"A\n"}`)
	assert.NotEqual(t, before, inode(t, w.at("f")))
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Ino
}

// TestAttributesOfAFileStay when it is replaced, and an overwrite of a file that is open says so.
func TestAttributesOfAFileStay(t *testing.T) {
	w := newWorld(t)
	w.file("f", "old")
	if err := unix.Setxattr(w.at("f"), "user.color", []byte("red"), 0); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skip("this file system has no attributes; CI's has")
	}
	require.NoError(t, unix.Setxattr(w.at("f"), "user.empty", nil, 0))
	value := make([]byte, 10)
	for _, call := range [][2]string{{"write_file", `{"file_path":"f","content":"new","mode":"overwrite"}`}, {"edit_file", `{"file_path":"f","old_string":"new","new_string":"newer"}`}} {
		before := inode(t, w.at("f"))
		w.ok(call[0], call[1])
		assert.NotEqual(t, before, inode(t, w.at("f")))
		n, err := unix.Getxattr(w.at("f"), "user.color", value)
		require.NoError(t, err, call[0])
		assert.Equal(t, "red", string(value[:n]))
		_, err = unix.Getxattr(w.at("f"), "user.empty", value)
		require.NoError(t, err)
	}
	open, err := os.Open(w.at("f"))
	require.NoError(t, err)
	defer open.Close()
	got := w.ok("write_file", `{"file_path":"f","content":"x","mode":"overwrite"}`)
	assert.Contains(t, got["notice"], "a program has the old file open")
}

func TestAReadOnlyWorkspaceRefusesChanges(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.Tmp = nil })
	w.file("f", "x")
	w.refused(tool.Unsupported, "write_file", `{"file_path":"n","content":"x"}`)
	w.refused(tool.Unsupported, "rm", `{"path":"f"}`)
	assert.Equal(t, "x", w.ok("read_file", `{"file_path":"f"}`)["content"])
}

func TestAClosedWorkspaceSaysSo(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.fs.Close())
	require.NoError(t, w.fs.Close())
	w.refused(tool.Closed, "ls", `{}`)
	w.refused(tool.Closed, "write_file", `{"file_path":"n","content":"x"}`)
}

// A descriptor that stays open keeps the session's disk mounted.
func TestAWriteLeavesNothingOpen(t *testing.T) {
	w := newWorld(t)
	before := openFiles(t)
	w.ok("write_file", `{"file_path":"a/b/c/f","content":"x"}`)
	assert.Equal(t, before, openFiles(t))
}
