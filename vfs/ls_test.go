package vfs_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/tool"
)

func TestLsListsDirectChildrenSorted(t *testing.T) {
	w := newWorld(t)
	a := w.ok("ls", `{}`)
	assert.Empty(t, a["entries"])
	assert.Equal(t, false, a["truncated"])
	assert.Equal(t, "/", a["path"])
	w.file("docs/a/b/c", "x")
	w.file(".h", "12345")
	w.fifo("p")
	w.link("/etc/passwd", "l")
	a = w.ok("ls", `{"path":"/workspace"}`)
	assert.Equal(t, []any{".h", "docs", "l", "p"}, a.each("entries", "name"))
	assert.Equal(t, []any{"file", "directory", "symlink", "other"}, a.each("entries", "kind"))
	assert.Equal(t, []any{5.0, nil, nil, nil}, a.each("entries", "size_bytes"))
	assert.Equal(t, []any{1.0, nil, nil, nil}, a.each("entries", "version"))
	assert.Equal(t, []any{nil, nil, "/etc/passwd", nil}, a.each("entries", "target"))
	a = w.ok("ls", `{"path":"docs"}`)
	assert.Equal(t, []any{"docs/a"}, a.each("entries", "path"))
	assert.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, a.each("entries", "updated_at")[0])
}

func TestLsRefusesWhatIsNoDirectory(t *testing.T) {
	w := newWorld(t)
	w.file("f", "x")
	w.link(w.outside, "out")
	w.link("loop", "loop")
	w.fifo("p")
	assert.Equal(t, "path", w.refused(tool.NotDir, "ls", `{"path":"f"}`).Field)
	w.refused(tool.NotDir, "ls", `{"path":"p"}`)
	w.refused(tool.NotDir, "ls", `{"path":"f/x"}`)
	w.refused(tool.NotFound, "ls", `{"path":"missing"}`)
	w.refused(tool.Escape, "ls", `{"path":"out"}`)
	w.refused(tool.Escape, "ls", `{"path":"out/"}`)
	w.refused(tool.NotRegular, "ls", `{"path":"loop"}`)
}

func TestLsEscapesNamesThatNoPathMayHave(t *testing.T) {
	w := newWorld(t)
	w.file("o/a\nb", "x")
	w.file("o/\xff", "x")
	w.file("o/ü\x1b[1m", "x")
	a := w.ok("ls", `{"path":"o"}`)
	assert.Equal(t, []any{`a\nb`, `\u00fc\x1b[1m`, `\xff`}, a.each("entries", "name"))
	assert.Equal(t, 3.0, w.ok("rm", `{"path":"o"}`)["deleted"].(float64)-1)
}

func TestADirectoryCalledWorkspaceIsShownSoThatItCanBeAddressed(t *testing.T) {
	w := newWorld(t)
	w.file("workspace/f", "in")
	a := w.ok("ls", `{"path":"/workspace/workspace"}`)
	shown := a.each("entries", "path")[0].(string)
	assert.Equal(t, "in", w.ok("read_file", args(map[string]any{"file_path": shown}))["content"])
}

func TestLsOf100000EntriesIsBoundedAndQuick(t *testing.T) {
	w := newLargeWorld(t)
	w.many("many", 100_000)
	within(t, func() {
		a := w.ok("ls", `{"path":"many"}`)
		assert.Len(t, a["entries"], 10_000)
		assert.Equal(t, true, a["truncated"])
		assert.Equal(t, "f000000", a.each("entries", "name")[0])
	})
	within(t, func() {
		a := w.ok("glob", `{"pattern":"**/*","path":"many"}`)
		assert.Len(t, a["matches"], 2_000)
		assert.Equal(t, true, a["truncated"])
		assert.Equal(t, "many/f001999", a.each("matches", "path")[1999])
	})
	within(t, func() {
		a := w.ok("grep", `{"pattern":"x","path":"many"}`)
		assert.Empty(t, a["matches"])
		assert.Equal(t, 100_000.0, a["files_searched"])
	})
	within(t, func() {
		assert.Equal(t, 100_001.0, w.ok("rm", `{"path":"many"}`)["deleted"])
	})
	assert.Eventually(t, func() bool { // it answers before all is gone
		staged, err := os.ReadDir(filepath.Join(w.path, "../tmp"))
		return err == nil && len(staged) == 0
	}, 2*time.Minute, 10*time.Millisecond)
}
