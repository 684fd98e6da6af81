package sharing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/sharing"
)

func TestFewKeepsValuesUntilItIsEmptied(t *testing.T) {
	few := sharing.Few[string, int]{Max: 2}
	assert.True(t, few.Reserve("a"))
	assert.False(t, few.Reserve("a"), "it has a place")
	assert.True(t, few.Put("a", 1))
	assert.True(t, few.Reserve("b"))
	assert.False(t, few.Reserve("c"), "no place is left")
	_, ok := few.Drop("b")
	assert.False(t, ok, "b was only reserved")
	assert.False(t, few.Put("b", 2), "its place is free again")
	assert.True(t, few.Reserve("c"))
	assert.Equal(t, []int{1}, few.Empty(), "c was only reserved")
	assert.False(t, few.Put("b", 2))
	assert.False(t, few.Reserve("d"))
	assert.Empty(t, few.Empty())
}

func TestFewFreesThePlaceOfAKey(t *testing.T) {
	few := sharing.Few[string, int]{Max: 1}
	assert.True(t, few.Reserve("a"))
	assert.True(t, few.Put("a", 1))
	value, ok := few.Drop("a")
	assert.True(t, ok)
	assert.Equal(t, 1, value)
	_, ok = few.Drop("a")
	assert.False(t, ok)
	assert.True(t, few.Reserve("b"))
}
