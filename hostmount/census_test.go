package hostmount_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/tool"
)

// TestAMountThatIsTooLargeNamesWhatToLeaveOut, with an exclude that makes it fit.
func TestAMountThatIsTooLargeNamesWhatToLeaveOut(t *testing.T) {
	h := newHost(t)
	for i := range 40 {
		h.write(fmt.Sprintf("allowed/big/web/node_modules/p%d/index.js", i), strings.Repeat("x", 1000))
		h.write(fmt.Sprintf("allowed/big/.git/objects/%02d/x", i%7), "o")
		h.write(fmt.Sprintf("allowed/big/src/f%d", i%3), "s")
	}
	h.write("allowed/big/README", "r")
	h.opts.MaxFiles = 30
	said := h.refused(tool.Limit, "allowed/big").Message
	assert.Contains(t, said, "more than 30 files and directories, the session's limit; raise it (--inodes)")
	assert.Contains(t, said, "it has 103 files and directories")
	assert.Contains(t, said, "most in web/node_modules (81, 39.06KiB)")
	assert.Contains(t, said, "it fits with exclude=web/node_modules")
	h.mustCopy("allowed/big,exclude=web/node_modules")

	h.opts.MaxFiles, h.opts.MaxBytes = 1000, 20_000
	said = h.refused(tool.TooLarge, "allowed/big").Message
	assert.Contains(t, said, "the limit of the session's disk; raise it (--disk)")
	assert.Contains(t, said, "it fits with exclude=web/node_modules")
	said = h.refused(tool.TooLarge, "allowed/big,max-bytes=1k,exclude=nothing").Message
	assert.Contains(t, said, "its max-bytes")
	assert.Contains(t, said, "exclude=web/node_modules")

	h.opts.MaxFiles, h.opts.MaxBytes = 3, 0
	said = h.refused(tool.Limit, "allowed/big").Message
	assert.NotContains(t, said, "it fits", "no folder is the cause")
	assert.Contains(t, said, ".git (16, ")
}

// TestTheDefaultIsTheDefaultDisk of a session, which a checkout with its packages fits into.
func TestTheDefaultIsTheDefaultDisk(t *testing.T) {
	h := newHost(t)
	for i := range 20_100 {
		h.mkdir(fmt.Sprintf("allowed/many/%d", i/1000))
		require.NoError(t, unix.Mknod(h.path(fmt.Sprintf("allowed/many/%d/%d", i/1000, i)), unix.S_IFREG|0o644, 0))
	}
	f, err := os.Create(h.path("allowed/many/large"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(300<<20))
	require.NoError(t, f.Close())
	report, err := hostmount.Preview(t.Context(), []hostmount.Mount{h.parse("allowed/many")}, h.opts)
	require.NoError(t, err)
	assert.EqualValues(t, 20_101, report.Files)
}

// TestHolesAndNamesOfFilesStay: a file with holes takes no more room than at home, nor does one with several names.
func TestHolesAndNamesOfFilesStay(t *testing.T) {
	h := newHost(t)
	h.write("allowed/l/a", strings.Repeat("x", 100_000))
	require.NoError(t, os.Link(h.path("allowed/l/a"), h.path("allowed/l/b")))
	h.mkdir("allowed/l/d")
	require.NoError(t, os.Link(h.path("allowed/l/a"), h.path("allowed/l/d/c")))
	sparse, err := os.Create(h.path("allowed/l/sparse"))
	require.NoError(t, err)
	_, err = sparse.WriteAt([]byte("middle"), 40<<20)
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(64<<20))
	require.NoError(t, sparse.Close())
	h.opts.MaxBytes = 64<<20 + 150_000
	report := h.mustCopy("allowed/l")
	assert.EqualValues(t, 4, report.Files)
	var a, b, holes unix.Stat_t
	require.NoError(t, unix.Stat(h.path("workspace/a"), &a))
	require.NoError(t, unix.Stat(h.path("workspace/d/c"), &b))
	require.NoError(t, unix.Stat(h.path("workspace/sparse"), &holes))
	assert.Equal(t, a.Ino, b.Ino)
	assert.EqualValues(t, 3, a.Nlink)
	assert.EqualValues(t, 64<<20, holes.Size)
	assert.Less(t, holes.Blocks*512, int64(1<<20))
	raw, err := os.ReadFile(filepath.Join(h.path("workspace"), "sparse"))
	require.NoError(t, err)
	assert.Equal(t, "middle", string(raw[40<<20:40<<20+6]))
	assert.Len(t, strings.ReplaceAll(string(raw), "\x00", ""), 6)

	h.opts.MaxBytes = 0
	h.write("allowed/over/a", "another")
	h.mustCopy("allowed/l:x", "allowed/over:x")
	assert.Equal(t, "another", h.read("workspace/x/a"))
	assert.Len(t, h.read("workspace/x/b"), 100_000, "its first name is another mount's file")
}
