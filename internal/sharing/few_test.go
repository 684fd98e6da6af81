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
	assert.Equal(t, []int{1}, few.Empty(), "b was only reserved")
	assert.False(t, few.Put("b", 2))
	assert.False(t, few.Reserve("d"))
	assert.Empty(t, few.Empty())
}
