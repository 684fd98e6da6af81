package vfs_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
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

// TestHolesGoOutAsHoles if the receiver keeps them: tar and our own reader find the same content.
func TestHolesGoOutAsHoles(t *testing.T) {
	w := newLargeWorld(t)
	deep := "s/" + strings.Repeat("deep/", 30) + strings.Repeat("n", 80)
	for _, name := range []string{"s/begin", "s/middle", "s/end", "s/none", deep, "s/dense"} {
		w.file(name, "")
	}
	put := func(name string, at int64, text string) {
		f, err := os.OpenFile(w.at(name), os.O_WRONLY, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte(text), at)
		require.NoError(t, err)
	}
	put("s/begin", 3<<30, "end")
	put("s/middle", 0, "a")
	put("s/middle", 1<<30, "b")
	put("s/end", 0, "a")
	put(deep, 1<<20, "deep")
	put("s/dense", 0, strings.Repeat("x", 100_000))
	require.NoError(t, os.Truncate(w.at("s/end"), 1<<30))
	require.NoError(t, os.Truncate(w.at("s/none"), 5<<20))
	var stream bytes.Buffer
	moved, err := w.fs.ExportWith(t.Context(), "s", &stream, &vfs.ExportOptions{Sparse: true})
	require.NoError(t, err)
	assert.Empty(t, moved.Skipped)
	assert.Zero(t, moved.Incomplete)
	assert.Equal(t, 6, moved.Files)
	assert.Less(t, stream.Len(), 1<<20)
	out := t.TempDir()
	cmd := exec.Command("tar", "-xf", "-", "-C", out)
	cmd.Stdin = bytes.NewReader(stream.Bytes())
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	for r := tar.NewReader(&stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		from, err := os.Stat(w.at("s/" + h.Name))
		require.NoError(t, err)
		by, err := os.Stat(filepath.Join(out, h.Name))
		require.NoError(t, err)
		assert.Equal(t, from.Size(), h.Size)
		assert.Equal(t, from.Size(), by.Size())
		assert.WithinDuration(t, from.ModTime(), h.ModTime, time.Second)
		if h.Size > 100<<20 { // it takes long to read
			continue
		}
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		want, err := os.ReadFile(w.at("s/" + h.Name))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), h.Name)
		unpacked, err := os.ReadFile(filepath.Join(out, h.Name))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, unpacked), h.Name)
	}
	for name, at := range map[string]int64{"begin": 3 << 30, "middle": 1 << 30} {
		f, err := os.Open(filepath.Join(out, name))
		require.NoError(t, err)
		b := make([]byte, 1)
		_, err = f.ReadAt(b, at)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		assert.Contains(t, "eb", string(b))
	}
}

// TestZerosComeInAsHoles, which don't count as content.
func TestZerosComeInAsHoles(t *testing.T) {
	w := newWorld(t)
	var stream bytes.Buffer
	tw := tar.NewWriter(&stream)
	content := append(make([]byte, 8<<20), "end"...)
	require.NoError(t, tw.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: int64(len(content))}))
	_, err := tw.Write(content)
	require.NoError(t, err)
	require.NoError(t, tw.Close())
	moved, err := w.fs.Import(t.Context(), &stream, "")
	require.NoError(t, err)
	assert.Equal(t, 1, moved.Files)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(w.at("f"), &st))
	assert.EqualValues(t, len(content), st.Size)
	assert.Less(t, st.Blocks*512, int64(1<<20))
	assert.Equal(t, string(content), w.content("f"))
}

// TestWhatProgramsObeyIsLeftOut if that is asked for, with its reason.
func TestWhatProgramsObeyIsLeftOut(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"p/a", "p/.git/config", "p/sub/.Hg/hgrc", "p/sub/b", "p/.wisbox-apply-x/y", "p/w/.git", "p/bare/HEAD", "p/bare/config", "p/Head/index.js"} {
		w.file(name, "x")
	}
	require.NoError(t, os.Symlink(".git/hooks", w.at("p/link")))
	require.NoError(t, os.Symlink("../a", w.at("p/sub/head")))
	var stream bytes.Buffer
	moved, err := w.fs.ExportWith(t.Context(), "p", &stream, &vfs.ExportOptions{LeaveOut: true})
	require.NoError(t, err)
	assert.Equal(t, 4, moved.Files)
	assert.Zero(t, moved.Incomplete)
	var names []string
	for _, s := range moved.Skipped {
		names = append(names, s.Name)
	}
	assert.ElementsMatch(t, []string{".git/", "sub/.Hg/", ".wisbox-apply-x/", "w/.git", "link", "bare/HEAD", "sub/head"}, names)
	assert.NotContains(t, stream.String(), "hgrc")
	_, err = w.fs.ExportWith(t.Context(), "p/.git", &stream, &vfs.ExportOptions{LeaveOut: true})
	assert.Equal(t, tool.Permission, tool.KindOf(err))
	moved, err = w.fs.Export(t.Context(), "p", &stream)
	require.NoError(t, err)
	assert.Equal(t, 9, moved.Files)
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
