package vfs_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
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

func TestADirectoryIsReadPartByPart(t *testing.T) {
	w := newWorld(t)
	const count = 5000 // more than the kernel gives at once
	for i := range count {
		w.file(fmt.Sprintf("d/file-%020d", i), "")
	}
	f, err := w.fs.FS().Open("d")
	require.NoError(t, err)
	defer f.Close()
	dir := f.(fs.ReadDirFile)
	seen := map[string]bool{}
	for {
		entries, err := dir.ReadDir(7)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(entries), 7)
		for _, e := range entries {
			seen[e.Name()] = true
		}
		if len(seen) == 14 { // the rest, at once
			entries, err := dir.ReadDir(-1)
			require.NoError(t, err)
			assert.Len(t, entries, count-14)
			assert.True(t, slices.IsSortedFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }))
			for _, e := range entries {
				seen[e.Name()] = true
			}
		}
	}
	assert.Len(t, seen, count)
}
