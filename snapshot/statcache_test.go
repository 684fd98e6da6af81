package snapshot

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

func TestTheCacheKeepsWhatTheLookHasSeen(t *testing.T) {
	of := func(ino uint64, ctime int64) content { return content{stamp: stamp{ino: ino, size: 1, ctime: ctime}} }
	seen := func(ino uint64, ctime int64, at int32) entry {
		return entry{kind: file, size: 1, ino: ino, ctime: ctime, sure: true, cached: at}
	}
	c := loadCache(openRoot(t, hosttest.InMemory(t)))
	c.set([]content{of(2, 1), of(4, 1), of(6, 1), of(8, 1)})
	below := &dir{entries: []entry{
		seen(9, 3, 0), seen(8, 1, 4), // new; known
		seen(4, 1, 2), seen(4, 2, 0), seen(4, 2, 0), // three names of a file that changed between the scans of them
		seen(1, 3, 0),
		{kind: file, size: 1, ino: 7, ctime: 3},    // could change unseen
		{kind: file, size: 0, ino: 3, sure: true},  // nothing to know
		{kind: symlink, size: 0, ino: 5, ctime: 3}, // no file
	}}
	c.keep(&entry{kind: folder, dir: &dir{entries: []entry{seen(2, 1, 1), {kind: folder, dir: below}}}})
	assert.Equal(t, []content{of(1, 3), of(2, 1), of(4, 2), of(8, 1), of(9, 3)}, c.known)
	for _, k := range c.known {
		found, _, ok := c.find(k.stamp)
		require.True(t, ok, "%+v", k)
		assert.Equal(t, k, found)
	}
	for _, gone := range []content{of(4, 1), of(6, 1), of(7, 3)} {
		_, _, ok := c.find(gone.stamp)
		assert.False(t, ok, "%+v", gone)
	}
	assert.True(t, c.dirty)
}

// The cache of an unchanged tree is not written again.
func TestTheCacheIsWrittenWhenItHasChanged(t *testing.T) {
	root := openRoot(t, hosttest.InMemory(t))
	c := loadCache(root)
	c.add(content{stamp: stamp{ino: 1, size: 1}})
	tree := &entry{kind: folder, dir: &dir{entries: []entry{{kind: file, size: 1, ino: 1, sure: true}}}}
	c.keep(tree)
	require.NoError(t, c.save(root))
	require.NoError(t, root.Remove(cacheName))

	tree.dir.entries[0].cached = 1
	c.keep(tree)
	require.NoError(t, c.save(root))
	_, err := root.Stat(cacheName)
	require.ErrorIs(t, err, fs.ErrNotExist)

	tree.dir.entries = nil
	c.keep(tree)
	require.NoError(t, c.save(root))
	_, err = root.Stat(cacheName)
	require.NoError(t, err)
	assert.Empty(t, loadCache(root).known)
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, root.Close()) })
	return root
}
