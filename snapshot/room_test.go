package snapshot

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
)

// benchWith returns a bench whose store has limits.
func benchWith(t testing.TB, limits Limits) *bench {
	t.Helper()
	b := newBench(t)
	require.NoError(t, b.store.Close())
	b.reopen(limits)
	return b
}

func (b *bench) reopen(limits Limits) {
	b.t.Helper()
	opts := options(b.t, b.dir)
	opts.Limits = limits
	s, err := New(opts)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { assert.NoError(b.t, s.Close()) })
	b.store = s
}

// noise writes a file that can't be compressed.
func (b *bench) noise(t *testing.T, name string, size int) {
	t.Helper()
	content := make([]byte, size)
	_, err := io.ReadFull(randomness(t), content)
	require.NoError(t, err)
	b.write(name, string(content))
}

func (b *bench) step(call string) (Info, error) {
	return b.store.Create(context.Background(), &CreateOptions{Call: call})
}

// stored returns the bytes in the store.
func (b *bench) stored() (total int64) {
	b.t.Helper()
	require.NoError(b.t, filepath.Walk(filepath.Join(b.dir, "store"), func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			total += info.Size()
		}
		return err
	}))
	return total
}

func (b *bench) calls() (calls []string) {
	b.t.Helper()
	list, err := b.store.List(context.Background())
	require.NoError(b.t, err)
	for _, i := range list {
		calls = append(calls, i.Call+i.Label)
	}
	return calls
}

func TestAFullStoreForgetsTheOldestStepsAndNoOther(t *testing.T) {
	const limit = 8 << 20
	b := benchWith(t, Limits{Store: limit})
	b.noise(t, "named", 1<<20)
	named, err := b.store.Create(context.Background(), &CreateOptions{Label: "mine"})
	require.NoError(t, err)
	want := tree(t, b.ws)
	for i := range 20 {
		b.noise(t, "f", 1<<20)
		_, err := b.step(fmt.Sprintf("call-%02d", i))
		require.NoError(t, err, causeOf(err))
		require.LessOrEqual(t, b.stored(), int64(limit), "after %d", i)
	}
	calls := b.calls()
	assert.Equal(t, "mine", calls[0])
	assert.Equal(t, "call-19", calls[len(calls)-1])
	assert.Greater(t, len(calls), 3, "no more than necessary is deleted")
	for i, call := range calls[1:] {
		assert.Equal(t, fmt.Sprintf("call-%02d", 20-len(calls)+1+i), call, "the newest are there without a gap")
	}
	found, err := b.store.Verify(context.Background())
	require.NoError(t, err)
	assert.Empty(t, found)
	b.restore(named.ID)
	assert.Equal(t, want, tree(t, b.ws))
}

func TestASnapshotThatDoesNotFitTakesNoStepWithIt(t *testing.T) {
	b := benchWith(t, Limits{Store: 4 << 20})
	b.noise(t, "f", 3<<20)
	b.create()
	b.write("small", "x")
	_, err := b.step("kept")
	require.NoError(t, err)
	b.noise(t, "f", 3<<20)
	for range 3 {
		_, err = b.store.Create(context.Background(), nil)
		assert.Equal(t, tool.NoSpace, tool.KindOf(err))
		assert.ErrorContains(t, err, "snapshot rm")
		assert.LessOrEqual(t, b.stored(), int64(4<<20))
	}
	assert.Contains(t, b.calls(), "kept")
	assert.Empty(t, leftovers(t, b.dir))
}

func TestTheNumberOfPiecesIsBounded(t *testing.T) {
	b := benchWith(t, Limits{Objects: 1_000})
	for i := range 10 {
		for j := range 300 {
			b.write(fmt.Sprintf("f%03d", j), fmt.Sprint(i, j))
		}
		_, err := b.step(fmt.Sprint("call", i))
		require.NoError(t, err, causeOf(err))
		require.LessOrEqual(t, len(b.store.objects.index), 1_001)
	}
	for j := range 1_200 {
		b.write(fmt.Sprintf("g%04d", j), fmt.Sprint("g", j))
	}
	_, err := b.step("too many")
	assert.Equal(t, tool.NoSpace, tool.KindOf(err))
}

func TestTheHostIsAskedForRoomAsTheStoreGrows(t *testing.T) {
	b := newBench(t)
	asked := 0
	b.store.opts.Room = func(context.Context) error {
		if asked++; asked > 3 {
			return tool.Errorf(tool.NoSpace, "the host is full")
		}
		return nil
	}
	b.noise(t, "f", 10<<20)
	_, err := b.store.Create(context.Background(), nil)
	assert.ErrorContains(t, err, "the host is full")
	assert.Equal(t, 4, asked, "once for each MiB")
	assert.Empty(t, leftovers(t, b.dir))
}

func TestARestoreThatFreesAsksForNoRoom(t *testing.T) {
	b := newBench(t)
	b.write("f", "small")
	id := b.create().ID
	b.noise(t, "f", 1<<20)
	b.noise(t, "g", 1<<20)
	b.store.opts.Room = func(context.Context) error { return tool.Errorf(tool.NoSpace, "the host is full") }
	b.restore(id)
	b.store.opts.Room = nil
	b.noise(t, "large", 1<<20)
	id = b.create().ID
	clearDir(t, b.ws)
	b.store.opts.Room = func(context.Context) error { return tool.Errorf(tool.NoSpace, "the host is full") }
	_, err := b.store.Restore(context.Background(), id, nil)
	assert.ErrorContains(t, err, "the host is full")
}

// scatter writes one byte per stride into a file of that size.
func (b *bench) scatter(name string, size, stride int64) {
	b.t.Helper()
	f, err := os.Create(filepath.Join(b.ws, name))
	require.NoError(b.t, err)
	defer f.Close()
	require.NoError(b.t, f.Truncate(size))
	for at := int64(0); at < size; at += stride {
		_, err := f.WriteAt([]byte{1}, at)
		require.NoError(b.t, err)
	}
}

func (b *bench) blocks(name string) int64 {
	b.t.Helper()
	var st unix.Stat_t
	require.NoError(b.t, unix.Stat(filepath.Join(b.ws, name), &st))
	return st.Blocks * 512
}

// A snapshot reads, hashes and keeps only the data on the disk: scattered bytes cost whole pages, but not the holes
// between them.
func TestScatteredBytesCostThePagesThatTheyTake(t *testing.T) {
	const size, pages = 512 << 20, 400
	for name, make := range map[string]func(*bench){
		"one file":            func(b *bench) { b.scatter("f", size, size/pages) },
		"files of 256 KiB":    func(b *bench) { b.many(pages, 256<<10, 256<<10) },
		"two ends of a chunk": func(b *bench) { b.many(pages/2, 256<<10, 256<<10-page) },
	} {
		t.Run(name, func(t *testing.T) {
			b := benchWith(t, Limits{Bytes: 2 * pages * page})
			make(b)
			var hashed atomic.Int64
			work := b.store.budget(t.Context())
			defer work.Close()
			_, _, err := b.store.scan(work, func(c []byte) (Hash, error) { hashed.Add(int64(len(c))); return hashOf(c), nil }, func(Hash) bool { return false })
			require.NoError(t, err, causeOf(err))
			assert.Less(t, hashed.Load(), int64(2*pages*page))
			want := tree(t, b.ws)
			before := b.blocks(".")
			info := b.create()
			if name == "one file" {
				before = b.blocks("f")
			}
			clearDir(t, b.ws)
			b.restore(info.ID)
			if name == "one file" {
				assert.LessOrEqual(t, b.blocks("f"), before, "the holes come back")
			}
			assert.Equal(t, want, tree(t, b.ws))
			again := b.create()
			assert.Zero(t, again.NewBytes, "the same content is the same object in any layout")
		})
	}
}

func (b *bench) many(files int, size, stride int64) {
	for i := range files {
		b.scatter(fmt.Sprintf("d%02d-%04d", i%20, i), size, stride)
	}
}

// A file has one hash, whether its zeros are holes or were written.
func TestZerosAndHolesAreTheSame(t *testing.T) {
	b := newBench(t)
	for name, size := range map[string]int{"small": 100 << 10, "large": 1 << 20} {
		content := make([]byte, size)
		copy(content[size/2:], "in the middle")
		b.write(name, string(content))
	}
	written := b.create()
	for name, size := range map[string]int64{"small": 100 << 10, "large": 1 << 20} {
		f, err := os.OpenFile(filepath.Join(b.ws, name), os.O_RDWR, 0)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(0))
		require.NoError(t, f.Truncate(size))
		_, err = f.WriteAt([]byte("in the middle"), size/2)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	d, err := b.store.Diff(context.Background(), written.ID, "")
	require.NoError(t, err)
	assert.Empty(t, d.Changed)
}

func TestAPieceHoldsNoLongRunOfZeros(t *testing.T) {
	data := func(at ...int) []byte {
		b := make([]byte, chunkSize)
		for _, i := range at {
			b[i*page+7] = 1
		}
		return b
	}
	for _, c := range []struct {
		b    []byte
		want []run
	}{
		{make([]byte, chunkSize), nil},
		{nil, nil},
		{[]byte("x"), []run{{0, 1}}},
		{data(0), []run{{0, page}}},
		{data(63), []run{{63 * page, page}}},
		{data(3, 5, 9), []run{{3 * page, 7 * page}}},
		{data(3, 9), []run{{3 * page, page}, {9 * page, page}}},
		{data(0)[:page+5], []run{{0, page}}},
		{append(data(63), "tail"...), []run{{63 * page, page + 4}}},
	} {
		var got []run
		for r := firstRun(c.b, 0); r.size > 0; r = firstRun(c.b, r.at+r.size) {
			got = append(got, r)
		}
		assert.Equal(t, c.want, got)
	}
}

// The records of a session's snapshots count too: the paths in them are bounded.
func TestARecordNamesNoMoreThanItMay(t *testing.T) {
	b := newBench(t)
	deep := strings.Repeat(strings.Repeat("d", 200)+"/", 15)
	require.NoError(t, os.MkdirAll(filepath.Join(b.ws, deep), 0o755))
	for i := range 1_000 {
		require.NoError(t, unix.Mkfifo(filepath.Join(b.ws, deep, fmt.Sprint(i)), 0o600))
	}
	info := b.create()
	assert.NotEmpty(t, info.Skipped)
	raw, err := os.ReadFile(filepath.Join(b.dir, "store/records", info.ID+recordSuffix))
	require.NoError(t, err)
	assert.Less(t, len(raw), 64<<10)
}

func TestADeepPathIsShownByItsEnds(t *testing.T) {
	p := newPlace(-1)
	for i := range 5_000 {
		p = p.child(fmt.Sprintf("dir%04d", i))
	}
	shown := p.clipped("name\n")
	assert.LessOrEqual(t, len(shown), maxShown+3)
	assert.True(t, strings.HasPrefix(shown, "dir0000/dir0001/"), shown[:100])
	assert.True(t, strings.HasSuffix(shown, `/dir4998/dir4999/name\n`), shown[len(shown)-100:])
	assert.Equal(t, "a/b", newPlace(-1).child("a").clipped("b"))
}

// fullDisk returns a bench whose workspace is on its own small disk.
func fullDisk(t *testing.T, dir string) *bench {
	t.Helper()
	disk := filepath.Join(dir, "disk")
	hosttest.Tmpfs(t, disk, "size=1m")
	for _, d := range []string{"ws", "tmp"} {
		require.NoError(t, os.Mkdir(filepath.Join(disk, d), 0o700))
		require.NoError(t, os.Symlink(filepath.Join(disk, d), filepath.Join(dir, d)))
	}
	b := &bench{t: t, dir: dir, ws: filepath.Join(disk, "ws")}
	b.reopen(Limits{})
	return b
}
