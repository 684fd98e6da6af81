package vfs_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// TestAnswersAreBoundedInBytes: a program creates few entries whose answer would be long: link
// texts, paths, and characters that need six bytes in JSON.
func TestAnswersAreBoundedInBytes(t *testing.T) {
	w := newLargeWorld(t)
	w.dir("links")
	text := strings.Repeat("\x01", 4_000)
	for i := range 4_000 {
		require.NoError(t, os.Symlink(text, w.at(fmt.Sprintf("links/%d", i))))
	}
	a := w.ok("ls", `{"path":"links"}`)
	assert.Less(t, len(a["json"].(string)), 10<<20)
	assert.Less(t, len(a["text"].(string)), 10<<20)
	assert.Equal(t, true, a["truncated"])

	long := strings.Repeat("n", 250)
	at, err := unix.Open(w.path, unix.O_PATH, 0)
	require.NoError(t, err)
	for range 400 { // a path of 100,000 characters
		require.NoError(t, unix.Mkdirat(at, long, 0o755))
		next, err := unix.Openat(at, long, unix.O_PATH, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(at))
		at = next
	}
	for i := range 300 {
		fd, err := unix.Openat(at, fmt.Sprintf("f%d", i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		require.NoError(t, err)
		_, err = unix.Write(fd, []byte("needle\n"))
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
	}
	require.NoError(t, unix.Close(at))
	for tool, pattern := range map[string]string{"glob": "**/n*", "grep": "needle"} {
		a = w.ok(tool, args(map[string]any{"pattern": pattern}))
		assert.Less(t, len(a["json"].(string)), 5<<20, tool)
		assert.Equal(t, true, a["truncated"], tool)
		assert.NotEmpty(t, a["matches"], tool)
	}

	w.file("control", strings.Repeat(strings.Repeat("\x01", 1_500)+"\n", 3_000))
	a = w.ok("grep", `{"pattern":"\\x01","path":"control","before":100,"after":100}`)
	assert.Less(t, len(a["json"].(string)), 10<<20)
	assert.Equal(t, true, a["truncated"])
	w.file("empty", strings.Repeat("\n", 4<<20))
	a = w.ok("grep", `{"pattern":"^$","path":"empty","before":100,"after":100}`)
	assert.Less(t, len(a["json"].(string)), 10<<20)
}

// TestHolesDontGoOutWithoutAnEnd has sparse files, each small enough.
func TestHolesDontGoOutWithoutAnEnd(t *testing.T) {
	w := newLargeWorld(t)
	for i := range 40 {
		w.file(fmt.Sprintf("s/%d", i), "")
		require.NoError(t, os.Truncate(w.at(fmt.Sprintf("s/%d", i)), 60<<20))
	}
	moved, err := w.fs.Export(t.Context(), "s", io.Discard)
	require.NoError(t, err)
	assert.LessOrEqual(t, moved.Bytes, int64(1<<30))
	assert.NotEmpty(t, moved.Skipped)
	assert.Contains(t, moved.Skipped[0].Reason, "sparse")
}

// TestASparseEntryIsLeftOut has archives of a few KiB that expand to a gigabyte.
func TestASparseEntryIsLeftOut(t *testing.T) {
	if _, err := exec.LookPath("tar"); err != nil {
		hosttest.Lacks(t, "tar")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "holes"), []byte("x"), 0o644))
	require.NoError(t, os.Truncate(filepath.Join(dir, "holes"), 1<<30))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain"), []byte("x"), 0o644))
	for _, format := range []string{"gnu", "posix"} {
		archive, err := exec.Command("tar", "-cS", "--format="+format, "-C", dir, "holes", "plain").Output()
		require.NoError(t, err)
		require.Less(t, len(archive), 64<<10)
		w := newWorld(t)
		moved, err := w.fs.Import(t.Context(), bytes.NewReader(archive), "d")
		require.NoError(t, err, format)
		assert.Equal(t, 1, moved.Files, format)
		require.Len(t, moved.Skipped, 1, format)
		assert.Contains(t, moved.Skipped[0].Reason, "sparse")
		assert.NoFileExists(t, w.at("d/holes"))
	}
}
