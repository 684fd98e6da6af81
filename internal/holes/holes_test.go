package holes_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/holes"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestHolesAreFoundAndKept(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	require.NoError(t, err)
	defer f.Close()
	w := holes.NewWriter(f)
	_, err = io.Copy(w, io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("a"), 5000)), io.LimitReader(nothing{}, 4<<20), bytes.NewReader([]byte("end"))))
	require.NoError(t, err)
	_, err = io.Copy(w, io.LimitReader(nothing{}, 1<<20))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &st))
	assert.EqualValues(t, 5<<20+5003, st.Size)
	assert.Less(t, st.Blocks*512, int64(128<<10))
	assert.Less(t, w.Data, int64(64<<10))
	assert.True(t, holes.Worth(st.Size, st.Blocks))
	assert.False(t, holes.Worth(1<<20, 2048))
	var parts int
	for at := int64(0); at < st.Size; {
		from, to, err := holes.Data(int(f.Fd()), at, st.Size)
		require.NoError(t, err)
		if from == st.Size {
			break
		}
		parts++
		at = to
	}
	assert.Equal(t, 2, parts)
}

type nothing struct{}

func (nothing) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestNothingIsLostToHoles with random content in random pieces.
func TestNothingIsLostToHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := os.CreateTemp("", "holes")
		require.NoError(t, err)
		defer os.Remove(f.Name())
		defer f.Close()
		var want []byte
		w := holes.NewWriter(f)
		for range rapid.IntRange(0, 6).Draw(t, "pieces") {
			size := rapid.SampledFrom([]int{0, 1, 4095, 4096, 4097, 8192, 20000}).Draw(t, "size")
			piece := bytes.Repeat([]byte{byte(rapid.IntRange(0, 1).Draw(t, "byte"))}, size)
			want = append(want, piece...)
			n, err := w.Write(piece)
			require.NoError(t, err)
			require.Equal(t, size, n)
		}
		require.NoError(t, w.Close())
		got, err := os.ReadFile(f.Name())
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}
