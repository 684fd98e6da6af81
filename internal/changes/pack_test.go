package changes_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
)

// TestAHostileStreamIsRefused and writes nothing beside its directory.
func TestAHostileStreamIsRefused(t *testing.T) {
	outside := t.TempDir()
	for what, entries := range map[string][]tar.Header{
		"up":           {{Name: "new/../../f", Typeflag: tar.TypeReg, Size: 1}},
		"root":         {{Name: "/new/f", Typeflag: tar.TypeReg, Size: 1}},
		"the store":    {{Name: "store/f", Typeflag: tar.TypeReg, Size: 1}},
		"through link": {{Name: "new/d", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "new/d/f", Typeflag: tar.TypeReg, Size: 1}},
		"over link":    {{Name: "new/f", Typeflag: tar.TypeSymlink, Linkname: filepath.Join(outside, "f")}, {Name: "new/f", Typeflag: tar.TypeReg, Size: 1}},
		"device":       {{Name: "new/f", Typeflag: tar.TypeChar}},
		"hard link":    {{Name: "new/f", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}},
		"too deep":     {{Name: "new/" + strings.Repeat("a/", 3000) + "f", Typeflag: tar.TypeReg, Size: 1}},
	} {
		var stream bytes.Buffer
		w := tar.NewWriter(&stream)
		for _, h := range entries {
			require.NoError(t, w.WriteHeader(&h), what)
			if h.Size > 0 {
				_, err := w.Write([]byte("x"))
				require.NoError(t, err)
			}
		}
		require.NoError(t, w.Close())
		root, err := os.OpenRoot(t.TempDir())
		require.NoError(t, err)
		b := budget.New(t.Context(), changes.Limits)
		_, err = changes.Unpack(b, &stream, root)
		require.ErrorContains(t, err, "nothing was written", what)
		b.Close()
		require.NoError(t, root.Close())
	}
	left, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Empty(t, left)
}
