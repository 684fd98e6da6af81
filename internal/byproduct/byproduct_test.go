package byproduct_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/byproduct"
)

func TestCachesAndGitsIndexAreByProducts(t *testing.T) {
	for _, path := range []string{".git/index", "a/.git/index", "a/__pycache__/b.cpython-312.pyc", "__pycache__", ".cache/x/y", "old.pyc", ".pytest_cache/v"} {
		assert.True(t, byproduct.Is(path), path)
	}
	for _, path := range []string{"index", "git/index", ".git/HEAD", ".git/refs/heads/main", "cache/x", "a.py", "x.pyc/y", "my__pycache__"} {
		assert.False(t, byproduct.Is(path), path)
	}
	assert.Contains(t, byproduct.List(), "__pycache__/")
}
