package snapshot

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

var (
	segment = rapid.SampledFrom([]string{"a", "b", "c", "-rf", "\xff\n", "ü", ".git", "d e"})
	bytesOf = rapid.SampledFrom([]string{"", "x", "y", "hello\n", string(make([]byte, 300_000)), string(make([]byte, 400_000)) + "tail"})
	modeOf  = rapid.SampledFrom([]os.FileMode{0o644, 0o600, 0o666, 0o755, 0o400, 0o000, os.ModeSetuid | 0o755})
)

func somePath(t *rapid.T) string {
	path := ""
	for range rapid.IntRange(1, 3).Draw(t, "depth") {
		path = filepath.Join(path, segment.Draw(t, "segment"))
	}
	return path
}

// edit makes one random change, or none if that is impossible. It uses an os.Root, because its links lead out of the
// workspace and the test must not follow them either.
func edit(t *rapid.T, top string) {
	root, err := os.OpenRoot(top)
	require.NoError(t, err)
	defer root.Close()
	path := somePath(t)
	switch rapid.IntRange(0, 10).Draw(t, "edit") {
	case 0:
		_ = root.RemoveAll(path)
	case 1:
		_ = root.MkdirAll(path, 0o755)
	case 2:
		_ = root.MkdirAll(filepath.Dir(path), 0o755)
		_ = root.Symlink(rapid.SampledFrom([]string{"a", "/nowhere/secret", "../..", "\xff"}).Draw(t, "target"), path)
	case 3:
		_ = root.Rename(path, somePath(t))
	case 4, 8:
		_ = root.Link(path, somePath(t))
	case 9:
		if info, err := root.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
			_ = unix.Lsetxattr(filepath.Join(top, path), rapid.SampledFrom([]string{"user.a", "user.b"}).Draw(t, "attribute"), []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")), 0)
		}
	case 10:
		if info, err := root.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
			_ = unix.Lremovexattr(filepath.Join(top, path), "user.a")
		}
	case 5:
		_ = root.Chmod(path, modeOf.Draw(t, "mode"))
	default:
		_ = root.MkdirAll(filepath.Dir(path), 0o755)
		_ = root.WriteFile(path, []byte(bytesOf.Draw(t, "bytes")), 0o644)
	}
}

func TestAnySnapshotComesBackInAnyOrder(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		kept := map[string]map[string]string{}
		var ids []string
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			for range rapid.IntRange(0, 6).Draw(rt, "edits") {
				edit(rt, b.ws)
			}
			if len(ids) == 0 || rapid.Bool().Draw(rt, "create") {
				info, err := b.store.Create(ctx, nil)
				require.NoError(rt, err, causeOf(err))
				ids = append(ids, info.ID)
				kept[info.ID] = tree(t, b.ws)
				continue
			}
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			r, err := b.store.Restore(ctx, id, &RestoreOptions{Quiesce: rapid.Bool().Draw(rt, "quiesce")})
			require.NoError(rt, err, causeOf(err))
			require.Empty(rt, r.Conflicts)
			require.Equal(rt, kept[id], tree(t, b.ws))
		}
		b.removeSome(rt, ids, kept)
		require.Empty(rt, leftovers(t, b.dir))
	})
}

// A scan that reuses an earlier one finds the same as a fresh one, even right after a change.
func TestALookAgainMissesNothing(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		for range rapid.IntRange(1, 10).Draw(rt, "before") {
			edit(rt, b.ws)
		}
		b.write("same size", "x")
		r, err := b.store.readRecord(b.create().ID, "")
		require.NoError(rt, err)
		want, err := b.store.load(b.store.budget(ctx), r)
		require.NoError(rt, err)
		knowing := &restore{store: b.store, want: want, budget: b.store.budget(ctx)}
		for range rapid.IntRange(1, 4).Draw(rt, "looks") {
			seen, err := knowing.look()
			require.NoError(rt, err)
			fresh, err := (&restore{store: b.store, want: want, budget: b.store.budget(ctx)}).look()
			require.NoError(rt, err)
			require.Equal(rt, known(fresh), known(seen))
			for range rapid.IntRange(0, 3).Draw(rt, "edits") {
				edit(rt, b.ws)
			}
			b.write("same size", rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "rewritten"))
		}
	})
}

// known returns the result of a scan of a workspace.
func known(root *entry) map[string]entry {
	out := map[string]entry{"": {mode: root.mode, mtime: root.mtime}}
	walkTree(root.dir, nil, func(at *place, e *entry) {
		out[at.path(e.name)] = entry{kind: e.kind, list: e.list, mode: e.mode, mtime: e.mtime, size: e.size, hash: e.hash, target: e.target}
	})
	return out
}

// removeSome removes a snapshot: the others must remain restorable.
func (b *bench) removeSome(t *rapid.T, ids []string, kept map[string]map[string]string) {
	ctx := context.Background()
	victim := rapid.SampledFrom(ids).Draw(t, "victim")
	require.NoError(t, b.store.Remove(ctx, victim))
	damaged, err := b.store.Verify(ctx)
	require.NoError(t, err)
	require.Empty(t, damaged)
	for _, id := range ids {
		if id == victim {
			continue
		}
		_, err := b.store.Restore(ctx, id, nil)
		require.NoError(t, err, causeOf(err))
		require.Equal(t, kept[id], tree(b.t, b.ws))
	}
}

func TestADiffNamesExactlyWhatDiffers(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		for range rapid.IntRange(0, 10).Draw(rt, "before") {
			edit(rt, b.ws)
		}
		old := tree(t, b.ws)
		info, err := b.store.Create(ctx, nil)
		require.NoError(rt, err)
		for range rapid.IntRange(0, 6).Draw(rt, "after") {
			edit(rt, b.ws)
		}
		now := tree(t, b.ws)
		d, err := b.store.Diff(ctx, info.ID, "")
		require.NoError(rt, err)
		added, removed := map[string]bool{}, map[string]bool{}
		for path := range now {
			if _, was := old[path]; !was {
				added[shown(path)] = true
			}
		}
		for path := range old {
			if _, is := now[path]; !is {
				removed[shown(path)] = true
			}
		}
		require.Equal(rt, added, pathsOf(d.Added))
		require.Equal(rt, removed, pathsOf(d.Removed))
	})
}

func pathsOf(list []Change) map[string]bool {
	out := map[string]bool{}
	for _, c := range list {
		out[c.Path] = true
	}
	return out
}

func TestDecodersRefuseWhatNobodyEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		format := rapid.SampledFrom([]byte{treeFormat, richFormat}).Draw(t, "format")
		d, err := decodeDir(append([]byte{format}, b...))
		if err == nil {
			again, err := decodeDir(d.encode(nil))
			require.NoError(t, err)
			require.Equal(t, d, again)
		}
		_, _ = decodePieces(append([]byte{listFormat}, b...), 1<<20)
	})
}

func FuzzDecodeDir(f *testing.F) {
	d := dir{entries: []entry{{name: "a", kind: file, mode: 0o644, size: 3}, {name: "b", kind: symlink, target: "a"}, {name: "c", kind: folder}}}
	f.Add(d.encode(nil))
	d.entries[0].more, d.entries[2].more = &more{first: "x/y"}, &more{attrs: Hash{1}}
	f.Add(d.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := decodeDir(b); err == nil {
			for i, e := range d.entries {
				require.True(t, validName(e.name))
				require.True(t, i == 0 || d.entries[i-1].name < e.name)
			}
		}
	})
}

func TestADeepTreeComesBack(t *testing.T) {
	b := newBench(t)
	const depth = 5_000
	dir, err := os.Open(b.ws)
	require.NoError(t, err)
	fd := int(dir.Fd())
	for i := range depth {
		require.NoError(t, unix.Mkdirat(fd, "directory", 0o755))
		next, err := unix.Openat(fd, "directory", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		require.NoError(t, err)
		if i > 0 {
			_ = unix.Close(fd)
		}
		fd = next
	}
	leaf, err := unix.Openat(fd, "leaf", unix.O_CREAT|unix.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = unix.Write(leaf, []byte("deep"))
	require.NoError(t, err)
	_, _ = unix.Close(leaf), unix.Close(fd)

	began := time.Now()
	info := b.create()
	assert.Equal(t, int64(1), info.Files)
	clearDir(t, b.ws)
	r := b.restore(info.ID)
	assert.Equal(t, int64(depth+1), r.Added)
	d, err := b.store.Diff(context.Background(), info.ID, "")
	require.NoError(t, err)
	assert.Zero(t, len(d.Added)+len(d.Changed)+len(d.Removed))
	assert.Less(t, time.Since(began), 2*time.Minute)
	require.NoError(t, dir.Close())
}
