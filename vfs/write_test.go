package vfs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestHardLinksAreNotWrittenThrough(t *testing.T) {
	w := newWorld(t)
	w.file("a", "old")
	require.NoError(t, os.Link(w.at("a"), w.at("b")))
	w.ok("write_file", `{"file_path":"a","content":"new","mode":"overwrite"}`)
	assert.Equal(t, "old", w.content("b"))
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
