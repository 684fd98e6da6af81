package main

import (
	"archive/tar"
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	require.ErrorContains(t, unpackDir(&stream, dir), "leads out of the copy")
	var left []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if d.Type() == fs.ModeSymlink {
			left = append(left, p[len(dir)+1:])
		}
		return err
	}))
	assert.Equal(t, []string{"a/b/c/top", "a/b/inside", "broken", "inside"}, left)
}
