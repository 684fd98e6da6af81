package vfs_test

import (
	"errors"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

func TestTheGoFileSystemPassesTheStandardTest(t *testing.T) {
	w := newWorld(t)
	w.file("a/b/c.txt", "x")
	w.file("a/d", "")
	w.file("top", "y")
	w.link("b/c.txt", "a/inside")
	require.NoError(t, fstest.TestFS(w.fs.FS(), "a/b/c.txt", "a/d", "top", "a/inside"))
}

func TestTheGoFileSystemStaysInside(t *testing.T) {
	w := newWorld(t)
	w.link(w.outside, "out")
	w.link("/workspace/f", "abs")
	w.link("loop", "loop")
	w.file("f", "in")
	w.fifo("p")
	files := w.fs.FS()
	data, err := fs.ReadFile(files, "abs")
	require.NoError(t, err)
	assert.Equal(t, "in", string(data))
	for name, kind := range map[string]tool.Kind{"out/leak.txt": tool.Escape, "out": tool.Escape, "p": tool.NotRegular, "loop": tool.NotRegular} {
		_, err = files.Open(name)
		assert.Equal(t, kind, tool.KindOf(err), name)
	}
	_, err = files.Open("missing")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	_, err = files.Open("../x")
	assert.ErrorIs(t, err, fs.ErrInvalid)
	text, err := fs.ReadLink(files, "abs")
	require.NoError(t, err)
	assert.Equal(t, "/workspace/f", text)
	_, err = fs.ReadLink(files, "f")
	assert.ErrorIs(t, err, fs.ErrInvalid)
	info, err := fs.Lstat(files, "out")
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSymlink, info.Mode().Type())
	require.NoError(t, w.fs.Close())
	_, err = files.Open("f")
	assert.ErrorIs(t, err, fs.ErrClosed)
	assert.True(t, errors.Is(err, fs.ErrClosed))
}
