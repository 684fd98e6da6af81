package main

import (
	"archive/tar"
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
	assert.ErrorContains(t, err, file+" on the host has less than the 10 bytes that it had")
}

func TestAFileThatCannotBeWrittenHasNoDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nowhere", "file")
	_, err := os.Create(file)
	assert.EqualError(t, fileError(file, err), "not_found: "+file+" on the host can't be written: its directory does not exist")
}
