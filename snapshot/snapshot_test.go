package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/tool"
)

// bench is a workspace with its store, in the test's own directory.
type bench struct {
	t     testing.TB
	dir   string // contains ws, tmp and store
	ws    string
	store *Store
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{t: t, dir: tempDir(t)}
	b.ws = filepath.Join(b.dir, "ws")
	for _, d := range []string{"ws", "tmp", "store"} {
		require.NoError(t, os.Mkdir(filepath.Join(b.dir, d), 0o700))
	}
	b.store = openStore(t, b.dir)
	// The tests' own temporary directories can't be removed by path otherwise.
	t.Cleanup(func() { clearDir(t, b.ws) })
	return b
}

// tempDir returns a directory, in memory if possible: the tests create tens of thousands of files.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wisbox-snapshot-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	return dir
}

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := New(options(t, dir))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func options(t testing.TB, dir string) *Options {
	t.Helper()
	root := func(name string) *os.Root {
		r, err := os.OpenRoot(filepath.Join(dir, name))
		require.NoError(t, err)
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	return &Options{
		Workspace: root("ws"), Tmp: root("tmp"), Store: root("store"),
		Lock:    func(context.Context) (func(), error) { return func() {}, nil },
		Quiesce: func(context.Context) (func(), bool, error) { return func() {}, true, nil },
	}
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(filepath.Dir(filepath.Join(b.ws, name)), 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(b.ws, name), []byte(text), 0o644))
}

func (b *bench) create() Info {
	b.t.Helper()
	info, err := b.store.Create(context.Background(), nil)
	require.NoError(b.t, err, causeOf(err))
	return info
}

func (b *bench) restore(id string) Restored {
	b.t.Helper()
	r, err := b.store.Restore(context.Background(), id, nil)
	require.NoError(b.t, err, causeOf(err))
	return r
}

// tree returns the content of a workspace without using the code under test: a line for each entry with its kind, mode,
// time, content, attributes and other names.
func tree(t testing.TB, top string) map[string]string {
	t.Helper()
	out, names := map[string]string{}, map[uint64][]string{}
	treeBelow(t, top, ".", out, names)
	for _, all := range names {
		slices.Sort(all)
		for _, name := range all {
			if len(all) > 1 {
				out[name] += fmt.Sprintf(" names %q", all)
			}
		}
	}
	return out
}

// attributesOf returns the attributes of a file, "" if there are none.
func attributesOf(t testing.TB, path string) (out string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	buf := make([]byte, 1000)
	n, err := unix.Flistxattr(int(f.Fd()), buf)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return ""
	}
	require.NoError(t, err)
	names := strings.Split(string(buf[:n]), "\x00")
	slices.Sort(names)
	for _, name := range names {
		if name != "" {
			n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
			require.NoError(t, err)
			out += fmt.Sprintf(" %s=%q", name, buf[:n])
		}
	}
	return out
}

func treeBelow(t testing.TB, path, rel string, out map[string]string, names map[uint64][]string) {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Lstat(path, &st))
	what := fmt.Sprintf("%o %d ", st.Mode, st.Mtim.Nano())
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		target, err := os.Readlink(path)
		require.NoError(t, err)
		out[rel] = what + target
		return
	}
	if st.Mode&0o700 != 0o700 && os.Getuid() != 0 {
		require.NoError(t, unix.Chmod(path, 0o700))
		defer func() { require.NoError(t, unix.Chmod(path, uint32(st.Mode)&0o7777)) }()
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		what += hashOf(content).String() + attributesOf(t, path)
		names[st.Ino] = append(names[st.Ino], rel)
	case unix.S_IFDIR:
		entries, err := os.ReadDir(path)
		require.NoError(t, err)
		for _, e := range entries {
			treeBelow(t, filepath.Join(path, e.Name()), filepath.Join(rel, e.Name()), out, names)
		}
		if rel != "." { // the workspace's own aren't kept
			what += attributesOf(t, path)
		}
	}
	out[rel] = what
}

func clearDir(t testing.TB, dir string) {
	t.Helper()
	root, err := os.Open(dir)
	require.NoError(t, err)
	defer root.Close()
	names, err := root.Readdirnames(-1)
	require.NoError(t, err)
	for _, name := range names {
		_, err := removeAll(root, name)
		require.NoError(t, err)
	}
}

func TestARestoreGivesTheExactTreeBack(t *testing.T) {
	b := newBench(t)
	b.write("f", "v1")
	b.write("g", "gone")
	b.write("d/x", "in")
	b.write("bin/run", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "bin/run"), 0o755|fs.ModeSetuid|fs.ModeSetgid))
	require.NoError(t, os.Symlink("/nowhere/secret", filepath.Join(b.ws, "out")))
	require.NoError(t, os.Symlink("f", filepath.Join(b.ws, "in")))
	require.NoError(t, os.Mkdir(filepath.Join(b.ws, "empty"), 0o711))
	require.NoError(t, os.Link(filepath.Join(b.ws, "f"), filepath.Join(b.ws, "hard")))
	b.write("swap", "file")
	want := tree(t, b.ws)
	id := b.create().ID

	b.write("f", "v2")
	b.write("n", "new")
	require.NoError(t, os.Remove(filepath.Join(b.ws, "g")))
	require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "d")))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "bin/run"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(b.ws, "swap")))
	b.write("swap/now/a", "directory")
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "empty"), 0o700))

	got := b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
	assert.Empty(t, got.Conflicts)
	assert.Empty(t, leftovers(t, b.dir))
	again := b.restore(id)
	assert.Equal(t, Restored{ID: id}, again)
}

// leftovers returns the names that calls have left in a bench's directory. It waits for removals, which continue in the
// background after 3 s.
func leftovers(t testing.TB, dir string) (left []string) {
	t.Helper()
	goes := func(name string) bool { return strings.HasPrefix(name, "tmp/wisbox-slow-") }
	require.Eventually(t, func() bool { left = leftNow(t, dir); return !slices.ContainsFunc(left, goes) }, 3*time.Minute, time.Millisecond)
	return left
}

func leftNow(t testing.TB, dir string) []string {
	t.Helper()
	var left []string
	for _, d := range []string{"tmp", "store", "store/packs", "store/records"} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		require.NoError(t, err)
		for _, e := range entries {
			if d == "tmp" || strings.HasPrefix(e.Name(), tempPrefix) || e.Name() == intentName {
				left = append(left, d+"/"+e.Name())
			}
		}
	}
	return left
}

func TestASnapshotOfTheSameTreeAddsNothing(t *testing.T) {
	b := newBench(t)
	b.write("a/b", strings.Repeat("text ", 10_000))
	first := b.create()
	assert.Equal(t, int64(1), first.Files)
	assert.Equal(t, int64(50_000), first.Bytes)
	assert.Positive(t, first.NewBytes)
	assert.Zero(t, b.create().NewBytes)
	list, err := b.store.List(context.Background())
	require.NoError(t, err)
	assert.Len(t, list, 2)
	assert.Equal(t, first, list[0])
}

func TestAnUnknownSnapshotIsSaid(t *testing.T) {
	b := newBench(t)
	for id, kind := range map[string]tool.Kind{
		"nothere": tool.Invalid, "../../x": tool.Invalid, "": tool.Invalid, newID(): tool.NotFound, strings.ToUpper(newID()): tool.NotFound,
	} {
		_, err := b.store.Restore(context.Background(), id, nil)
		assert.Equal(t, kind, tool.KindOf(err), id)
		assert.Equal(t, "snapshot_id", tool.AsError(err).Field)
	}
}

func TestASparseFileCostsWhatItHolds(t *testing.T) {
	b := newBench(t)
	f, err := os.Create(filepath.Join(b.ws, "big"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<40))
	_, err = f.WriteAt([]byte("far out"), 1<<39)
	require.NoError(t, err)
	began := time.Now()
	info := b.create()
	assert.Less(t, info.NewBytes, int64(5_000))
	assert.Equal(t, int64(1<<40), info.Bytes)

	require.NoError(t, os.Remove(f.Name()))
	b.restore(info.ID)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(f.Name(), &st))
	assert.Equal(t, int64(1<<40), st.Size)
	assert.Less(t, st.Blocks*512, int64(1<<20))
	again, err := os.Open(f.Name())
	require.NoError(t, err)
	defer again.Close()
	got := make([]byte, 7)
	_, err = again.ReadAt(got, 1<<39)
	require.NoError(t, err)
	assert.Equal(t, "far out", string(got))
	assert.Less(t, time.Since(began), 30*time.Second)
}

func TestARestoreCanBeDurable(t *testing.T) {
	b := newBench(t)
	opts := options(t, b.dir)
	opts.Fsync = true
	s, err := New(opts)
	require.NoError(t, err)
	defer s.Close()
	b.write("d/f", "old")
	want := tree(t, b.ws)
	info, err := s.Create(t.Context(), nil)
	require.NoError(t, err, causeOf(err))
	b.write("d/f", "new")
	_, err = s.Restore(t.Context(), info.ID, nil)
	require.NoError(t, err, causeOf(err))
	assert.Equal(t, want, tree(t, b.ws))
	assert.Empty(t, leftovers(t, b.dir))
}
