package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// copying replaces the ioctl on file systems without reflinks; a program may act just before it shares.
func copying(t *testing.T, program func()) (shared *int) {
	shared = new(int)
	real := cloneFile
	cloneFile = func(dst, src int) error {
		program()
		buf := make([]byte, 1<<20)
		n, err := unix.Pread(src, buf, 0)
		if err != nil {
			return err
		}
		*shared++
		_, err = unix.Pwrite(dst, buf[:n], 0)
		return err
	}
	t.Cleanup(func() { cloneFile = real })
	return shared
}

// settle waits until the clock has passed a file's times: the times don't identify a file that changed at the moment of
// its scan.
func (b *bench) settle(name string) {
	b.t.Helper()
	var st unix.Stat_t
	require.NoError(b.t, unix.Lstat(filepath.Join(b.ws, name), &st))
	require.Eventually(b.t, func() bool { return st.Ctim.Nano() < coarseNow() }, 30*time.Second, time.Millisecond)
}

func TestACloneSharesBlocksOfWhatHasNotChanged(t *testing.T) {
	b, other := newBench(t), newBench(t)
	b.write("d/same", strings.Repeat("same", 1000))
	b.write("d/changed", strings.Repeat("old", 1000))
	b.settle("d/same")
	b.settle("d/changed")
	want := tree(t, b.ws)
	id := b.create().ID
	b.write("d/changed", "new")
	shared := copying(t, func() {})
	_, err := b.store.CloneTo(context.Background(), id, other.store)
	require.NoError(t, err)
	assert.Equal(t, want, tree(t, other.ws))
	assert.Equal(t, 1, *shared)
}

func TestAFileThatChangesWhileItIsSharedIsWrittenAnew(t *testing.T) {
	b, other := newBench(t), newBench(t)
	b.write("f", strings.Repeat("old", 1000))
	old := time.Now().Add(-time.Hour) // old enough for a file to count as unchanged
	require.NoError(t, os.Chtimes(filepath.Join(b.ws, "f"), old, old))
	b.settle("f")
	want := tree(t, b.ws)
	id := b.create().ID
	shared := copying(t, func() { b.write("f", strings.Repeat("new", 1000)) })
	_, err := b.store.CloneTo(context.Background(), id, other.store)
	require.NoError(t, err)
	assert.Equal(t, 1, *shared)
	assert.Equal(t, want, tree(t, other.ws))
}
