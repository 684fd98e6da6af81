package sharing_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/sharing"
)

// closing counts its Close calls.
type closing struct{ closed int }

func (c *closing) Close() error { c.closed++; return nil }

func TestLazyMakesOneValueAndClosesIt(t *testing.T) {
	made := 0
	lazy := sharing.Lazy[*closing]{New: func() (*closing, error) { made++; return &closing{}, nil }}
	first, err := lazy.Get()
	require.NoError(t, err)
	second, err := lazy.Get()
	require.NoError(t, err)
	assert.Same(t, first, second)
	assert.Equal(t, 1, made)
	require.NoError(t, lazy.Close())
	assert.Equal(t, 1, first.closed)
}

func TestLazyMakesNothingAfterClose(t *testing.T) {
	lazy := sharing.Lazy[*closing]{New: func() (*closing, error) { panic("made") }}
	require.NoError(t, lazy.Close())
	_, err := lazy.Get()
	require.ErrorIs(t, err, sharing.ErrClosed)
}

func TestLazyKeepsTheError(t *testing.T) {
	want := errors.New("no module")
	lazy := sharing.Lazy[*closing]{New: func() (*closing, error) { return nil, want }}
	for range 2 {
		_, err := lazy.Get()
		require.ErrorIs(t, err, want)
	}
	require.NoError(t, lazy.Close())
}
