package jsonfile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/tool/answer"
)

func TestAFullDiskIsNoSpace(t *testing.T) {
	full := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a disk that is full; root's run of this test does")
	}
	require.NoError(t, unix.Mount("tmpfs", full, "tmpfs", 0, "size=4k"))
	defer func() { require.NoError(t, unix.Unmount(full, 0)) }()
	err := jsonfile.Write(filepath.Join(full, "f"), strings.Repeat("x", 8<<10))
	require.ErrorIs(t, err, unix.ENOSPC)
	assert.Equal(t, answer.NoSpace, answer.KindOf(err))
	left, err := os.ReadDir(full)
	require.NoError(t, err)
	assert.Empty(t, left)
}
