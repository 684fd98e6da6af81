package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

func TestWhatAnEntryTakesIsCharged(t *testing.T) {
	assert.EqualValues(t, entryMemory, unsafe.Sizeof(entry{}))
	assert.EqualValues(t, pieceMemory, unsafe.Sizeof(piece{}))
	assert.Len(t, encodePieces([]piece{{size: 1}}), 1+minPiece)
}

// large holds workspaces that programs make to use up the manager's memory, with their number of entries.
var large = map[string]struct {
	number int
	make   func(t *testing.T, dir string, i int)
}{
	"long names": {30_000, func(t *testing.T, dir string, i int) {
		name := fmt.Sprintf("%s%06d", strings.Repeat("n", 249), i)
		require.NoError(t, unix.Mknod(filepath.Join(dir, name), unix.S_IFREG|0o644, 0))
	}},
	"links' texts": {6_000, func(t *testing.T, dir string, i int) {
		require.NoError(t, os.Symlink(fmt.Sprintf("%s%06d", strings.Repeat("t", 4_089), i), filepath.Join(dir, fmt.Sprint(i))))
	}},
	"directories": {35_000, func(t *testing.T, dir string, i int) {
		require.NoError(t, unix.Mkdir(filepath.Join(dir, fmt.Sprint(i)), 0o755))
	}},
	"a deep tree of wide names": {4_000, func(t *testing.T, dir string, i int) {
		name := strings.Repeat("d", 255)
		require.NoError(t, unix.Mkdir(name, 0o755))
		require.NoError(t, unix.Chdir(name))
	}},
	"files": {60_000, func(t *testing.T, dir string, i int) {
		if i%10 == 0 {
			require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte(fmt.Sprint("file", i)), 0o644))
			return
		}
		require.NoError(t, unix.Mknod(filepath.Join(dir, fmt.Sprint(i)), unix.S_IFREG|0o644, 0))
	}},
}

// quarter is the memory for the calls here, in bytes: a quarter, so that the test takes a quarter of the time.
const quarter = 20 << 20

// No content of a workspace makes a call use more memory than a manager has. A file that is too large is reported, and
// a restore still works.
func TestNoWorkspaceTakesTheManagersMemory(t *testing.T) {
	hosttest.OfMemory(t)
	cwd, err := os.Getwd()
	require.NoError(t, err)
	for name, l := range large {
		t.Run(name, func(t *testing.T) {
			b := benchWith(t, Limits{Memory: quarter})
			b.write("kept", "v1")
			want := tree(t, b.ws)
			id := b.create().ID
			b.write("kept", "v2")
			require.NoError(t, os.Chdir(b.ws))
			for i := range l.number {
				l.make(t, b.ws, i)
			}
			require.NoError(t, os.Chdir(cwd))
			bounded(t, "create", func() error {
				info, err := b.store.Create(t.Context(), nil)
				if err != nil {
					return err
				}
				bounded(t, "clone", func() error {
					_, err := b.store.CloneTo(t.Context(), info.ID, benchWith(t, Limits{Memory: quarter}).store)
					return err
				})
				bounded(t, "verify", func() error { _, err := b.store.Verify(t.Context()); return err })
				return nil
			})
			bounded(t, "diff", func() error {
				d, err := b.store.Diff(t.Context(), id, "")
				if err == nil {
					assert.LessOrEqual(t, len(d.Text()), 3<<20)
				}
				return err
			})
			bounded(t, "changed", func() error { _, err := b.store.Changed(t.Context(), id, 200, nil); return err })
			bounded(t, "restore", func() error { b.restore(id); return nil })
			assert.Equal(t, want, tree(t, b.ws))
			assert.Empty(t, leftovers(t, b.dir))
			bounded(t, "remove", func() error { return b.store.Remove(t.Context(), id) })
		})
	}
}

// bounded calls do, which may fail with limit, and checks its memory.
func bounded(t *testing.T, what string, do func() error) {
	t.Helper()
	var most uint64
	stop := watchHeap(&most)
	err := do()
	stop()
	if err != nil {
		assert.Equal(t, tool.Limit, tool.KindOf(err), "%s: %s", what, causeOf(err))
	}
	if !hosttest.Raced { // which takes memory itself, and collects garbage late
		assert.Less(t, most, uint64(2*quarter), what)
	}
	t.Logf("%s: %d MiB, %v", what, most>>20, err)
}

// A directory of the store may be too large to compare the workspace with it.
func TestATreeThatIsTooLargeToLookAtIsReplaced(t *testing.T) {
	b := newBench(t)
	b.write("d/f", "v1")
	b.write("g", "v1")
	require.NoError(t, os.Symlink("g", filepath.Join(b.ws, "l")))
	want := tree(t, b.ws)
	id := b.create().ID
	for i := range 300 {
		b.write(fmt.Sprintf("d/n%d", i), "new")
		b.write(fmt.Sprintf("n%d/x", i), "new")
	}
	b.write("g", "v2")
	require.NoError(t, os.Remove(filepath.Join(b.ws, "l")))
	b.store.opts.Limits.Entries = 100
	r := b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
	assert.Empty(t, r.Conflicts)
	assert.Empty(t, leftovers(t, b.dir))
	assert.Equal(t, Restored{ID: id}, b.restore(id))
}

// Without room for the new files, a restore first removes the unwanted ones.
func TestARestoreMakesItsOwnRoom(t *testing.T) {
	dir := tempDir(t)
	for _, d := range []string{"disk", "store"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	b := fullDisk(t, dir)
	b.noise(t, "f", 600<<10)
	want := tree(t, b.ws)
	id := b.create().ID
	require.NoError(t, os.Remove(filepath.Join(b.ws, "f")))
	err := os.WriteFile(filepath.Join(b.ws, "junk"), make([]byte, 4<<20), 0o644)
	require.ErrorIs(t, err, unix.ENOSPC)
	r := b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
	assert.EqualValues(t, 1, r.Added)
	assert.EqualValues(t, 1, r.Removed)

	// The same if that isn't enough: there is one file too many outside of the workspace.
	require.NoError(t, os.Remove(filepath.Join(b.ws, "f")))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "disk/filler"), make([]byte, 700<<10), 0o644))
	_ = os.WriteFile(filepath.Join(b.ws, "junk"), make([]byte, 4<<20), 0o644)
	_, err = b.store.Restore(context.Background(), id, nil)
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), causeOf(err))
	assert.ErrorContains(t, err, "were removed to make room")
	require.NoError(t, os.Remove(filepath.Join(b.dir, "disk/filler")))
	b.create() // there is nothing to finish
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
}

// An unreadable file stops a snapshot, but not a restore.
func TestAnUnreadableEntryIsReplaced(t *testing.T) {
	b := newBench(t)
	b.write("d/f", "v1")
	b.write("g", "v1")
	want := tree(t, b.ws)
	id := b.create().ID
	b.write("g", "v2")
	b.write("d/f", "v2")
	work := b.store.budget(t.Context())
	defer work.Close()
	s := &scan{budget: work, lenient: true}
	for err, pass := range map[error]bool{
		unix.EAGAIN: true, unix.EACCES: true, unix.EIO: true, beneath.ErrEscape: true, unix.EMFILE: false, unix.ENFILE: false,
		tool.Errorf(tool.Limit, "too much"): false, tool.Errorf(tool.Busy, "leased"): true, nil: false,
	} {
		assert.Equal(t, pass, s.mayPass(err), "%v", err)
	}
	s.lenient = false
	assert.False(t, s.mayPass(errors.New("any")))
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
}
