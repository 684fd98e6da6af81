package capture_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/capture"
)

// TestARingIsTheSameInMemoryAndInAFile whatever is written, and no file is made for little.
func TestARingIsTheSameInMemoryAndInAFile(t *testing.T) {
	const few, size = 100, 1000
	for _, at := range []int64{0, 70, 5000} {
		made := 0
		later := capture.NewLater(few, func() (*os.File, error) {
			made++
			return os.Create(filepath.Join(t.TempDir(), "f"))
		})
		plain, ours := capture.NewRing(capture.Memory(size), size, at), capture.NewRing(later, size, at)
		for i := range 200 {
			piece := bytes.Repeat([]byte{byte(i)}, rand.IntN(60))
			for _, r := range []*capture.Ring{plain, ours} {
				_, err := r.Write(piece)
				require.NoError(t, err)
			}
			start, end := plain.Bounds()
			if at == 0 {
				assert.Equal(t, end > few, made > 0, "%d bytes", end)
			}
			from := start + rand.Int64N(end-start+1)
			want, _, err := plain.Read(from, size)
			require.NoError(t, err)
			got, _, err := ours.Read(from, size)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		}
		assert.Equal(t, 1, made)
		require.NoError(t, later.Close())
		_, err := later.ReadAt(make([]byte, 1), 0)
		assert.ErrorIs(t, err, os.ErrClosed)
		_, err = later.WriteAt([]byte("x"), 0)
		assert.ErrorIs(t, err, os.ErrClosed)
	}
}

func TestAFileThatCanNotBeMadeIsTheWritesError(t *testing.T) {
	full := errors.New("no room")
	var err error
	later := capture.NewLater(2, func() (*os.File, error) { return nil, full })
	_, err = later.WriteAt([]byte("ab"), 0)
	require.NoError(t, err)
	_, err = later.WriteAt([]byte("c"), 2)
	require.ErrorIs(t, err, full)
	b := make([]byte, 4)
	n, err := later.ReadAt(b, 0)
	assert.Equal(t, "ab", string(b[:n]))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, later.Close())
}
