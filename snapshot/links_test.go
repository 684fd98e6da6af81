package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/hosttest"
)

var fewNames = rapid.SampledFrom([]string{"a", "b", "c", "d/a", "d/b", "e/f/a"})

// relink changes which names are one file, among few names.
func relink(t *rapid.T, top string) {
	at, to := filepath.Join(top, fewNames.Draw(t, "name")), filepath.Join(top, fewNames.Draw(t, "other"))
	require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	switch rapid.SampledFrom([]string{"link", "link", "link", "write", "part", "remove", "mode", "attribute", "rename", "remove dir"}).Draw(t, "what") {
	case "link":
		if at != to {
			_ = os.Remove(to)
			_ = os.Link(at, to)
		}
	case "write":
		require.NoError(t, os.WriteFile(at, []byte(rapid.SampledFrom([]string{"", "x", "y", strings.Repeat("z", 300_000)}).Draw(t, "content")), 0o644))
	case "part":
		if raw, err := os.ReadFile(at); err == nil {
			require.NoError(t, os.Remove(at))
			require.NoError(t, os.WriteFile(at, raw, 0o644))
		}
	case "remove":
		_ = os.Remove(at)
	case "mode":
		_ = os.Chmod(at, rapid.SampledFrom([]os.FileMode{0o600, 0o755}).Draw(t, "mode"))
	case "attribute":
		_ = unix.Setxattr(at, "user.a", []byte(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value")), 0)
	case "rename":
		_ = os.Rename(at, to)
	case "remove dir":
		_ = os.RemoveAll(filepath.Join(top, "d"))
	}
}

// TestTheNamesOfAFileComeBack in any order of snapshots, in clones and in archives: what was one file is one
// file, and what was not isn't.
func TestTheNamesOfAFileComeBack(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t)
		kept := map[string]map[string]string{}
		var ids []string
		for range rapid.IntRange(2, 10).Draw(rt, "steps") {
			for range rapid.IntRange(0, 5).Draw(rt, "edits") {
				relink(rt, b.ws)
			}
			if len(ids) == 0 || rapid.Bool().Draw(rt, "create") {
				info, err := b.store.Create(ctx, nil)
				require.NoError(rt, err, causeOf(err))
				require.Empty(rt, info.Unkept)
				ids = append(ids, info.ID)
				kept[info.ID] = tree(t, b.ws)
				continue
			}
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			r, err := b.store.Restore(ctx, id, nil)
			require.NoError(rt, err, causeOf(err))
			require.Empty(rt, r.Conflicts)
			require.Equal(rt, kept[id], tree(t, b.ws))
			d, err := b.store.Diff(ctx, id, "")
			require.NoError(rt, err)
			require.Empty(rt, d.Added, d.Changed, d.Removed)
		}
		damaged, err := b.store.Verify(ctx)
		require.NoError(rt, err)
		require.Empty(rt, damaged)
		require.Empty(rt, leftovers(t, b.dir))

		id := rapid.SampledFrom(ids).Draw(rt, "cloned")
		c := newBench(t)
		_, err = b.store.CloneTo(ctx, id, c.store)
		require.NoError(rt, err, causeOf(err))
		require.Equal(rt, kept[id], tree(t, c.ws))
		var archive bytes.Buffer
		_, err = c.store.Export(ctx, &archive, nil)
		require.NoError(rt, err, causeOf(err))
		opened, err := OpenArchive(&archive)
		require.NoError(rt, err)
		l := newBench(t)
		require.NoError(rt, l.store.Import(ctx, opened))
		_, err = l.store.Restore(ctx, opened.info.Head, nil)
		require.NoError(rt, err, causeOf(err))
		require.Equal(rt, kept[id], tree(t, l.ws))
	})
}

// TestNamesTakeTheRoomOfOneFile in the workspace, in the store, and while they are restored.
func TestNamesTakeTheRoomOfOneFile(t *testing.T) {
	b := newBench(t)
	content := make([]byte, 8<<20)
	for i := range content {
		content[i] = byte(i * i >> 8)
	}
	b.write("dir/first", string(content))
	for i := range 20 {
		require.NoError(t, os.Link(filepath.Join(b.ws, "dir/first"), filepath.Join(b.ws, fmt.Sprintf("dir/n%d", i))))
	}
	id := b.create().ID
	b.store.opts.Limits.Bytes = 20 << 20
	for _, change := range []func(){
		func() { require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "dir"))) },
		func() { require.NoError(t, os.Remove(filepath.Join(b.ws, "dir/n3"))) },
		func() { b.write("dir/n5", "in the way of all names") },
		func() {
			for i := range 20 {
				require.NoError(t, os.Remove(filepath.Join(b.ws, fmt.Sprintf("dir/n%d", i))))
			}
		},
	} {
		change()
		b.restore(id)
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(b.ws, "dir/n7"), &st))
		assert.EqualValues(t, 21, st.Nlink)
	}
	before := inodeOf(t, filepath.Join(b.ws, "dir/first"))
	require.NoError(t, os.Remove(filepath.Join(b.ws, "dir/n3")))
	b.restore(id)
	assert.Equal(t, before, inodeOf(t, filepath.Join(b.ws, "dir/n3")), "a name that is missing joins the file that is there")
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Ino
}

// TestWhatNoSnapshotKeepsOfAFileIsListed: an access list.
func TestWhatNoSnapshotKeepsOfAFileIsListed(t *testing.T) {
	b := newBench(t)
	b.write("d/plain", "x")
	b.write("d/listed", "x")
	const acl = "\x02\x00\x00\x00\x01\x00\x06\x00\xff\xff\xff\xff\x02\x00\x04\x00\xe8\x03\x00\x00\x04\x00\x04\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x04\x00\xff\xff\xff\xff"
	if err := unix.Setxattr(filepath.Join(b.ws, "d/listed"), "system.posix_acl_access", []byte(acl), 0); err != nil {
		hosttest.Lacks(t, "the file system of temporary files has no access lists: %v", err)
	}
	for range 2 { // the second time from the cache
		assert.Equal(t, []string{"d/listed"}, b.create().Unkept)
	}
}

// TestSnapshotsOfOlderVersionsPartNoNames: they don't know which names were one file.
func TestSnapshotsOfOlderVersionsPartNoNames(t *testing.T) {
	b := newBench(t)
	b.write("a", "x")
	info := b.create()
	r, err := b.store.readRecord(info.ID, "")
	require.NoError(t, err)
	r.Names = false
	require.NoError(t, b.store.writeRecord(r))
	require.NoError(t, os.Link(filepath.Join(b.ws, "a"), filepath.Join(b.ws, "b")))
	r2 := b.create()
	old, err := b.store.readRecord(r2.ID, "")
	require.NoError(t, err)
	old.Names = false
	require.NoError(t, b.store.writeRecord(old))
	before := tree(t, b.ws)
	assert.Zero(t, b.restore(r2.ID).Changed)
	assert.Equal(t, before, tree(t, b.ws))
}

// TestAHostileReferenceToAnotherNameIsNone: to itself, to a directory, to another content, to nothing.
func TestAHostileReferenceToAnotherNameIsNone(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c", "d", "dir/e", "same"} {
		b.write(name, name)
	}
	b.write("same2", "same")
	top, err := b.store.load(b.store.budget(context.Background()), mustRecord(t, b, b.create().ID))
	require.NoError(t, err)
	for name, first := range map[string]string{"a": "a", "b": "dir", "c": "d", "d": "nothing/here", "dir/e": "../a", "same2": "b"} {
		top.find(name).setFirst(first)
	}
	assert.Empty(t, groupsOf(top))
	top.find("same2").setFirst("same")
	top.find("same2").mtime = top.find("same").mtime
	assert.Len(t, groupsOf(top), 2)
}

func mustRecord(t *testing.T, b *bench, id string) *record {
	t.Helper()
	r, err := b.store.readRecord(id, "")
	require.NoError(t, err)
	return r
}
