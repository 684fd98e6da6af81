package vfs_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func archive(t testing.TB, headers ...tar.Header) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = h.PAXRecords["TEST.content"]
			h.PAXRecords = nil
			h.Size = int64(len(content))
		}
		require.NoError(t, w.WriteHeader(&h))
		_, err := w.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func tarFile(name, content string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, PAXRecords: map[string]string{"TEST.content": content}}
}

func TestImportBringsFilesDirectoriesAndLinks(t *testing.T) {
	w := newWorld(t)
	w.file("in/old", "replaced")
	w.link(w.outside+"/leak.txt", "in/link")
	got, err := w.fs.Import(t.Context(), archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o750}, tarFile("d/run", "#!", 0o4755), tarFile("old", "new", 0o600),
		tarFile("link", "over the link", 0o644), tarFile("deep/er/f", "x", 0o644), tarFile("ü", "named", 0o644),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "d/l", Linkname: "../old"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "abs", Linkname: "/workspace/in/old"},
		tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "d/run"},
	), "in")
	require.NoError(t, err)
	assert.Empty(t, got.Skipped)
	assert.Equal(t, []int{6, 1, 2}, []int{got.Files, got.Directories, got.Links})
	assert.Equal(t, "new", w.content("in/old"))
	assert.Equal(t, "over the link", w.content("in/link"))
	assert.Equal(t, "#!", w.content("in/hard"))
	info, err := os.Stat(w.at("in/d/run"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode(), "no set-id bits")
	assert.Equal(t, "new", w.ok("read_file", `{"file_path":"in/abs"}`)["content"])
}

func TestImportLeavesOutWhatLeaves(t *testing.T) {
	w := newWorld(t)
	w.link(w.outside, "out")
	w.dir("taken")
	got, err := w.fs.Import(t.Context(), archive(t,
		tarFile("../up", "x", 0o644), tarFile("/etc/x", "x", 0o644), tarFile("a/../../up", "x", 0o644), tarFile("out/created", "x", 0o644), tarFile("taken", "x", 0o644),
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l1", Linkname: "/etc/passwd"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l2", Linkname: "../x"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "l3", Linkname: "a/../../x"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l4", Linkname: "/workspacex"},
		tar.Header{Typeflag: tar.TypeLink, Name: "h1", Linkname: "out/leak.txt"}, tar.Header{Typeflag: tar.TypeLink, Name: "h2", Linkname: "../outside/leak.txt"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "p"}, tar.Header{Typeflag: tar.TypeChar, Name: "c", Devmajor: 1, Devminor: 5}, tarFile("last", "x", 0o644),
	), "")
	require.NoError(t, err)
	assert.Len(t, got.Skipped, 13)
	assert.Equal(t, 1, got.Files)
	assert.Equal(t, []any{"last", "out", "taken"}, w.ok("ls", `{}`).each("entries", "name"))
}

func TestImportSaysWhatIsWrong(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) { o.Limits.InBytes = 100 })
	_, err := w.fs.Import(t.Context(), strings.NewReader(strings.Repeat("no archive", 100)), "")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	whole := archive(t, tarFile("f", strings.Repeat("x", 90), 0o644)).Bytes()
	_, err = w.fs.Import(t.Context(), bytes.NewReader(whole[:600]), "")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.NoFileExists(t, w.at("f"))
	_, err = w.fs.Import(t.Context(), archive(t, tarFile("f", strings.Repeat("x", 60), 0o644), tarFile("g", strings.Repeat("x", 60), 0o644)), "")
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.NoFileExists(t, w.at("g"))
	_, err = w.fs.Import(t.Context(), archive(t), "../x")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.fs.Import(ctx, archive(t), "")
	assert.Equal(t, tool.Closed, tool.KindOf(err))
}

func TestExportWritesWhatStaysInside(t *testing.T) {
	w := newWorld(t)
	w.file("e/a/f", "content")
	w.file("e/ü\n", "odd")
	w.file("beside", "x")
	w.link("a/f", "e/rel")
	w.link("/workspace/e/a", "e/abs")
	w.link("/etc/passwd", "e/out")
	w.link("../beside", "e/sibling")
	w.link("a/../../beside", "e/late")
	w.fifo("e/p")
	w.dir("e/empty")
	w.file("e/huge", "")
	require.NoError(t, os.Truncate(w.at("e/huge"), 1<<40))
	var b bytes.Buffer
	got, err := w.fs.Export(t.Context(), "/workspace/e", &b)
	require.NoError(t, err)
	names := map[string]string{}
	r := tar.NewReader(&b)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		names[h.Name] = string(content) + h.Linkname
	}
	assert.Equal(t, map[string]string{"a/": "", "a/f": "content", "ü\n": "odd", "rel": "a/f", "abs": "a", "empty/": ""}, names)
	assert.Len(t, got.Skipped, 5)
	b.Reset()
	_, err = w.fs.Export(t.Context(), "e/a/f", &b)
	require.NoError(t, err)
	h, err := tar.NewReader(&b).Next()
	require.NoError(t, err)
	assert.Equal(t, "f", h.Name)
	_, err = w.fs.Export(t.Context(), "e/out", &b)
	assert.Equal(t, tool.Escape, tool.KindOf(err))
}

func TestWhatIsExportedCanBeImported(t *testing.T) {
	w := newWorld(t)
	w.file("src/a/b", "1")
	w.file("src/c", "2")
	w.link("a/b", "src/l")
	var b bytes.Buffer
	_, err := w.fs.Export(t.Context(), "src", &b)
	require.NoError(t, err)
	_, err = w.fs.Import(t.Context(), &b, "dst/here")
	require.NoError(t, err)
	assert.Equal(t, "1", w.content("dst/here/l"))
	assert.Equal(t, "2", w.content("dst/here/c"))
}

func TestExportOfOneFileThatIsMostlyHolesIsRefused(t *testing.T) {
	w := newWorld(t)
	w.file("huge", "")
	require.NoError(t, os.Truncate(w.at("huge"), 1<<40))
	var b bytes.Buffer
	_, err := w.fs.Export(t.Context(), "huge", &b)
	assert.Equal(t, tool.TooLarge, tool.KindOf(err))
	assert.ErrorContains(t, err, "huge is sparse")
}

func TestExportEndsWithItsReceiver(t *testing.T) {
	w := newWorld(t)
	w.file("f", strings.Repeat("x", 1<<20))
	r, pipe := io.Pipe()
	require.NoError(t, r.Close())
	_, err := w.fs.Export(t.Context(), "", pipe)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
}

func FuzzImportNeverLeaves(f *testing.F) {
	f.Add("a/b", "../x", byte(tar.TypeSymlink), "a/b/c")
	f.Add("../x", "", byte(tar.TypeReg), "/abs")
	f.Add("l", "/workspace/../..", byte(tar.TypeSymlink), "l/x")
	f.Add("h", "l", byte(tar.TypeLink), "h")
	shared := newWorld(f)
	f.Fuzz(func(t *testing.T, name, link string, kind byte, then string) {
		w := *shared
		w.TB = t
		var b bytes.Buffer
		out := tar.NewWriter(&b)
		if out.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o644}) != nil {
			return
		}
		if out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: then, Size: 1, Mode: 0o644}) != nil {
			return
		}
		_, _ = out.Write([]byte("x"))
		_ = out.Close()
		_, err := w.fs.Import(t.Context(), &b, "in")
		require.NotEqual(t, tool.Internal, tool.KindOf(err), "%v", err)
		w.untouched()
		_, err = w.call("rm", `{"path":"in","allow_missing":true}`)
		require.NoError(t, err)
	})
}
