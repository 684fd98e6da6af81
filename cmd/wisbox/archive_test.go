package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

func TestAFileThatShrinksWhileItIsCopiedIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(file, []byte("ten bytes\n"), 0o600))
	info, err := os.Lstat(file)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(file, 3))
	err = packEntry(tar.NewWriter(io.Discard), file, "log", fs.FileInfoToDirEntry(info))
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	assert.ErrorContains(t, err, file+" on the host has become shorter than its 10 bytes")
}

func TestAFileThatCannotBeWrittenHasNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nowhere", "file")
	_, err := os.Create(file)
	assert.EqualError(t, fileError(file, err), "not_found: "+file+" on the host can't be written: its directory does not exist")
}

func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for _, h := range entries {
		content := h.Uname // of these tests
		h.Uname, h.Size, h.Mode = "", int64(len(content)), 0o644
		require.NoError(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return stream.Bytes()
}

// TestACopyThatBreaksOffLeavesTheOldFiles: the stream ends within the file, and no new file is left.
func TestACopyThatBreaksOffLeavesTheOldFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o640))
	archive := archiveOf(t, tar.Header{Name: "f", Uname: strings.Repeat("new ", 1000)})
	a := &app{}
	for _, unpack := range []func(io.Reader) error{
		func(r io.Reader) error { return unpackDir(r, dir, true) },
		func(r io.Reader) error { return a.unpackFile(r, file) },
	} {
		require.Error(t, unpack(bytes.NewReader(archive[:1500])))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, "old", string(got))
		names, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Len(t, names, 1)
		require.NoError(t, unpack(bytes.NewReader(archive)))
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.EqualValues(t, 4000, info.Size())
		assert.Equal(t, fs.FileMode(0o640), info.Mode())
		require.NoError(t, os.WriteFile(file, []byte("old"), 0o640))
	}
}

// TestACopyKeepsTheNamesAndLinksOfAFile that it replaces.
func TestACopyKeepsTheNamesAndLinksOfAFile(t *testing.T) {
	dir, a := t.TempDir(), &app{}
	file := filepath.Join(dir, "f")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o644))
	require.NoError(t, os.Link(file, filepath.Join(dir, "other")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o755))
	require.NoError(t, os.Symlink("../f", filepath.Join(dir, "d/link")))
	require.NoError(t, a.unpackFile(bytes.NewReader(archiveOf(t, tar.Header{Name: "x", Uname: "new"})), filepath.Join(dir, "d/link")))
	got, err := os.ReadFile(filepath.Join(dir, "other"))
	require.NoError(t, err)
	assert.Equal(t, "new", string(got))
}

// TestACopyLeavesOutWhatProgramsObey, also if another machine sends it.
func TestACopyLeavesOutWhatProgramsObey(t *testing.T) {
	dir := t.TempDir()
	archive := archiveOf(t,
		tar.Header{Name: ".git", Typeflag: tar.TypeDir}, tar.Header{Name: "sub/.HG", Typeflag: tar.TypeDir}, tar.Header{Name: ".wisbox-apply-x", Typeflag: tar.TypeDir},
		tar.Header{Name: "a", Uname: "x"}, tar.Header{Name: ".git/config", Uname: "x"}, tar.Header{Name: "sub/.HG/hgrc", Uname: "x"}, tar.Header{Name: "s/.svn", Typeflag: tar.TypeDir},
		tar.Header{Name: ".wisbox-apply-x/y", Uname: "x"}, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".git/hooks"},
		tar.Header{Name: "HEAD", Uname: "x"}, tar.Header{Name: "head", Typeflag: tar.TypeSymlink, Linkname: "a"})
	require.NoError(t, unpackDir(bytes.NewReader(archive), dir, false))
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, names, 1)
	require.NoError(t, unpackDir(bytes.NewReader(archive), dir, true))
	assert.FileExists(t, filepath.Join(dir, ".git/config"))
}

// TestACopyChangesNoRepositoryOfTheHost: a directory with HEAD is one for git, whose config names programs.
func TestACopyChangesNoRepositoryOfTheHost(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "fixture/hooks"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "page/head"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fixture/HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
	entries := []tar.Header{
		{Name: "fixture", Typeflag: tar.TypeDir}, {Name: "fixture/config", Uname: "x"}, {Name: "fixture/hooks/post-commit", Uname: "x"},
		{Name: "fixture/link", Typeflag: tar.TypeSymlink, Linkname: "config"}, {Name: "other", Uname: "x"}, {Name: "page/config", Uname: "x"},
	}
	require.ErrorContains(t, unpackDir(bytes.NewReader(archiveOf(t, entries...)), dir, false), "fixture/config")
	for _, name := range []string{"fixture/config", "fixture/hooks/post-commit", "fixture/link"} {
		assert.NoFileExists(t, filepath.Join(dir, name))
	}
	assert.FileExists(t, filepath.Join(dir, "other"))
	assert.FileExists(t, filepath.Join(dir, "page/config"))
	require.NoError(t, unpackDir(bytes.NewReader(archiveOf(t, entries...)), dir, true))
	assert.FileExists(t, filepath.Join(dir, "fixture/config"))
}

func TestPathsOfTheSystemAreOutsideOfTheWorkspace(t *testing.T) {
	for p, want := range map[string]string{"/tmp/x": "/tmp/x", "/tmp": "/tmp", "/tmp/": "/tmp/", "/home//me/../you": "/home/you", "/etc/hosts": "/etc/hosts"} {
		got, is := outside(p)
		assert.True(t, is, p)
		assert.Equal(t, want, got)
	}
	for _, p := range []string{"", "x", "tmp/x", "/", "/workspace/tmp/x", "/workspace", "/data/x", "/tmpx", "/tmp/../workspace/x"} {
		_, is := outside(p)
		assert.False(t, is, p)
	}
}

// TestACopyLeavesNoLinkThatLeadsOut whatever another machine sends.
func TestACopyLeavesNoLinkThatLeadsOut(t *testing.T) {
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "a/b/c", Typeflag: tar.TypeDir}))
	for _, link := range [][2]string{
		{"absolute", "/etc/passwd"}, {"up", "../x"}, {"a/up", "../../x"},
		{"a/b/c/top", "../../.."}, {"by", "a/b/c/top/../../../etc/passwd"},
		{"by/f", "x"}, {"inside", "a/b"}, {"a/b/inside", "../../inside"}, {"broken", "nothing"},
	} {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: link[0], Typeflag: tar.TypeSymlink, Linkname: link[1]}))
	}
	require.NoError(t, w.Close())
	dir := filepath.Join(t.TempDir(), "copy")
	require.ErrorContains(t, unpackDir(&stream, dir, true), "leads out of the copy")
	var left []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d.Type() == fs.ModeSymlink {
			left = append(left, p[len(dir)+1:])
		}
		return err
	}))
	assert.Equal(t, []string{"a/b/c/top", "a/b/inside", "broken", "inside"}, left)
}

// TestANewDirectoryIsCopiedWholeOrNot, and the next copy removes what a killed one left beside it.
func TestANewDirectoryIsCopiedWholeOrNot(t *testing.T) {
	parent := t.TempDir()
	to := filepath.Join(parent, "new")
	archive := archiveOf(t, tar.Header{Name: "a", Uname: "1"}, tar.Header{Name: "b", Uname: strings.Repeat("2", 4000)})
	require.Error(t, unpackDir(bytes.NewReader(archive[:3000]), to, true))
	assert.Empty(t, entriesOf(t, parent))
	require.NoError(t, os.MkdirAll(filepath.Join(parent, copyPrefix+"killed", "copy"), 0o700))
	require.NoError(t, unpackDir(bytes.NewReader(archive), to, true))
	assert.Equal(t, []string{"new"}, entriesOf(t, parent))
	assert.Equal(t, []string{"a", "b"}, entriesOf(t, to))
	require.NoError(t, os.Mkdir(filepath.Join(parent, "like"), 0o755))
	like, err := os.Stat(filepath.Join(parent, "like"))
	require.NoError(t, err)
	info, err := os.Stat(to)
	require.NoError(t, err)
	assert.Equal(t, like.Mode(), info.Mode())
}

// TestAFileHasNoNameUntilItIsComplete, so that a killed process leaves nothing.
func TestAFileHasNoNameUntilItIsComplete(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	for range 2 { // a new file, then one that is replaced
		before := entriesOf(t, dir)
		f, err := newWholeFile(root, "f", 0o600)
		require.NoError(t, err)
		_, err = f.WriteString("whole")
		require.NoError(t, err)
		if f.temp == "" { // this file system has files without a name
			assert.Equal(t, before, entriesOf(t, dir))
		}
		require.NoError(t, f.place())
		f.discard()
		assert.Equal(t, []string{"f"}, entriesOf(t, dir))
	}
	f, err := newWholeFile(root, "g", 0o600)
	require.NoError(t, err)
	f.discard()
	assert.Equal(t, []string{"f"}, entriesOf(t, dir))
}

// TestACopyToAFullDiskNamesTheFileAndWhatToDo.
func TestACopyToAFullDiskNamesTheFileAndWhatToDo(t *testing.T) {
	dir := t.TempDir()
	hosttest.Tmpfs(t, dir, "size=64k")
	archive := archiveOf(t, tar.Header{Name: "f", Uname: strings.Repeat("x", 1<<20)})
	for name, unpack := range map[string]func(io.Reader) error{
		"f":   func(r io.Reader) error { return (&app{}).unpackFile(r, filepath.Join(dir, "f")) },
		"d/f": func(r io.Reader) error { return unpackDir(r, filepath.Join(dir, "d"), true) },
	} {
		err := unpack(bytes.NewReader(archive))
		assert.Equal(t, tool.NoSpace, tool.KindOf(err), "%v", err)
		assert.ErrorContains(t, err, filepath.Join(dir, name)+" on the host has no room")
		assert.Empty(t, entriesOf(t, dir))
	}
}

func entriesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}
