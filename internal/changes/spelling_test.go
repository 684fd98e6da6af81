package changes_test

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/internal/changes"
	"github.com/wisbox/wisbox/tool"
)

// If names are folded, README finds readme, which isn't the file of the session.
func TestAnEntryThatIsSpelledOtherwiseIsAConflict(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("README", "other"))
	defer free()
	h.write("README", "changed\n")
	require.NoError(t, os.Remove(filepath.Join(h.dir, "other")))
	before := tree(t, h.host)
	changes.FoldNames(t, func(*os.File) (map[string]bool, error) { return map[string]bool{"readme": true, "other": true}, nil })
	done, err := h.apply(false)
	require.NoError(t, err)
	require.Len(t, done.Conflicts, 1)
	assert.Equal(t, "README", done.Conflicts[0].Path)
	assert.Contains(t, done.Conflicts[0].Reason, "in other letters")
	h.untouched(before)
}

func TestWhereNamesAreFoldedAnApplyIsTheSame(t *testing.T) {
	h, free := newHome(t, t.TempDir(), files("README", "d/a", "d/b", "gone"))
	defer free()
	changes.FoldNames(t, nil)
	h.write("README", "changed\n")
	h.write("d/new", "x\n")
	require.NoError(t, os.Remove(filepath.Join(h.dir, "d/b")))
	require.NoError(t, os.Remove(filepath.Join(h.dir, "gone")))
	done, err := h.apply(false)
	require.NoError(t, err)
	assert.Empty(t, done.Conflicts)
	assert.Equal(t, tree(t, h.dir), tree(t, h.host))
}

func TestNamesThatAreOneHereAreRefused(t *testing.T) {
	changes.FoldNames(t, nil)
	var stream bytes.Buffer
	w := tar.NewWriter(&stream)
	for range 2 { // as those of README and readme are, where names are folded
		require.NoError(t, w.WriteHeader(&tar.Header{Name: "new/readme", Typeflag: tar.TypeReg}))
	}
	require.NoError(t, w.Close())
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	b := budget.New(t.Context(), changes.Limits)
	defer b.Close()
	_, err = changes.Unpack(b, &stream, root)
	assert.Equal(t, tool.Conflict, tool.KindOf(err))
	assert.ErrorContains(t, err, "case-sensitive")
}
