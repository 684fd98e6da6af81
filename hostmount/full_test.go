package hostmount_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// onTmpfs puts the workspace and its staging directory on a small file system.
func (h *host) onTmpfs(options string) {
	h.t.Helper()
	h.mkdir("small")
	hosttest.Tmpfs(h.t, h.path("small"), options)
	h.mkdir("small/workspace")
	h.mkdir("small/tmp")
	h.opts.Dest, h.opts.Staging = h.root("small/workspace"), h.root("small/tmp")
}

func TestAFullFileSystemIsNoSpaceAndNothingIsLeft(t *testing.T) {
	for name, options := range map[string]string{"bytes": "size=256k", "inodes": "nr_inodes=20"} {
		h := newHost(t)
		h.write("allowed/big/0", strings.Repeat("x", 1<<20))
		for i := range 40 {
			h.write("allowed/big/"+strings.Repeat("y", i+1), "")
		}
		h.onTmpfs(options)
		_, err := h.copy("allowed/big:p")
		require.Equal(t, tool.NoSpace, tool.KindOf(err), "%s: %v", name, err)
		for _, dir := range []string{"workspace", "tmp"} {
			f, err := h.root("small/" + dir).Open(".")
			require.NoError(t, err)
			names, err := f.Readdirnames(-1)
			require.NoError(t, err)
			assert.Empty(t, names, name)
			_ = f.Close()
		}
		_, err = h.copy("allowed/repo:p")
		assert.NoError(t, err, "it works again")
	}
}
