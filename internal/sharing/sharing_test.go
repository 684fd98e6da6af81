package sharing_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/sharing"
)

func TestAValueEndsWithItsLastUser(t *testing.T) {
	var m sharing.Map[string, *int]
	made := 0
	create := func() (*int, error) { made++; return new(made), nil }
	first, err := m.Use("a", create)
	require.NoError(t, err)
	same, err := m.Use("a", create)
	require.NoError(t, err)
	assert.Same(t, first, same)
	assert.Equal(t, []*int{first}, m.Values())
	assert.False(t, m.Release("a", first))
	assert.True(t, m.Release("a", first))
	assert.False(t, m.Release("a", first), "it has ended")
	assert.Empty(t, m.Values())
	next, err := m.Use("a", create)
	require.NoError(t, err)
	assert.NotSame(t, first, next)
	assert.False(t, m.Release("a", first), "it isn't the one that there is now")
	assert.Equal(t, 2, made)
	_, err = m.Use("b", func() (*int, error) { return nil, errors.New("no") })
	require.Error(t, err)
	assert.Len(t, m.Values(), 1)
}
