package jsonfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/jsonfile"
)

func TestAValueComesBackAndOnlyWeCanReadIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	var got map[string]int
	require.ErrorIs(t, jsonfile.Read(path, &got), fs.ErrNotExist)
	for n := range 2 {
		require.NoError(t, jsonfile.Write(path, map[string]int{"n": n}))
		require.NoError(t, jsonfile.Read(path, &got))
		assert.Equal(t, n, got["n"])
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 1, "no temporary file is left")
	require.NoError(t, jsonfile.Remove(path))
	require.NoError(t, jsonfile.Remove(path))
}

func TestWhatCouldntBeReadIsntWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	var got string
	require.NoError(t, jsonfile.Write(path, "old"))
	large := strings.Repeat("a", 16<<20-2) // with quotes and a line break one too many
	require.ErrorIs(t, jsonfile.Write(path, large), jsonfile.ErrTooLarge)
	require.NoError(t, jsonfile.Read(path, &got))
	assert.Equal(t, "old", got)
}

func TestWhatIsNoJSONIsAnErrorThatNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	assert.ErrorContains(t, jsonfile.Read(path, &struct{}{}), "f.json")
	assert.Error(t, jsonfile.Read(filepath.Dir(path), &struct{}{}))
}
