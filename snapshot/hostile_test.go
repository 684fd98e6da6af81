package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/hosttest"
	_ "github.com/wisbox/wisbox/internal/properties"
	"github.com/wisbox/wisbox/tool"
)

func TestSpecialFilesAreSkippedAndNamed(t *testing.T) {
	b := newBench(t)
	b.write("f", "1")
	fifo := filepath.Join(b.ws, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	info := b.create()
	assert.Equal(t, []string{"fifo"}, info.Skipped)
	b.write("f", "2")
	r := b.restore(info.ID)
	assert.Empty(t, r.Skipped, "it is still there")
	assert.FileExists(t, filepath.Join(b.ws, "f"))

	require.NoError(t, os.Remove(fifo))
	require.NoError(t, unix.Mkfifo(filepath.Join(b.ws, "other"), 0o600))
	r = b.restore(info.ID)
	assert.Equal(t, []string{"fifo"}, r.Skipped)
	assert.NoFileExists(t, filepath.Join(b.ws, "other"))
	assert.Empty(t, r.Conflicts)
}

func TestLinksOutAreNeverFollowed(t *testing.T) {
	b := newBench(t)
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("CANARY"), 0o600))
	b.write("d/f", "kept")
	id := b.create().ID
	require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "d")))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.ws, "d")))
	b.restore(id)
	assert.DirExists(t, filepath.Join(b.ws, "d"))
	assert.NoFileExists(t, filepath.Join(outside, "f"))
	content, err := os.ReadFile(filepath.Join(b.ws, "d/f"))
	require.NoError(t, err)
	assert.Equal(t, "kept", string(content))

	require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "d")))
	require.NoError(t, os.Symlink(outside, filepath.Join(b.ws, "d")))
	b.create()
	assert.NotContains(t, storeText(t, b), "CANARY")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	assert.Len(t, entries, 1)
}

func storeText(t *testing.T, b *bench) string {
	t.Helper()
	var all strings.Builder
	for h := range b.store.objects.index {
		content, err := b.store.objects.get(h)
		require.NoError(t, err)
		all.Write(content)
	}
	return all.String()
}

// aPack returns the store's largest pack.
func aPack(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "store/packs"))
	require.NoError(t, err)
	best, size := "", int64(-1)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		if info.Size() > size {
			best, size = e.Name(), info.Size()
		}
	}
	return filepath.Join(dir, "store/packs", best)
}

func TestADamagedFileIsNamedAndNothingIsChanged(t *testing.T) {
	flip := func(b []byte) []byte {
		b[bytes.Index(b, []byte("UNIQUE"))] ^= 1
		return b
	}
	for name, harm := range map[string]func([]byte) []byte{
		"changed": flip, "changed, of a directory that is gone": flip,
		"cut": func(b []byte) []byte { return b[:bytes.Index(b, []byte("UNIQUE"))+2] },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("good", "good content")
			first := b.create().ID
			b.write("sub/victim", "UNIQUE\x00\x01\x02\x03") // too short to be compressed
			second := b.create().ID
			b.write("sub/victim", "other")
			if name == "changed, of a directory that is gone" {
				require.NoError(t, os.RemoveAll(filepath.Join(b.ws, "sub")))
			}
			before := tree(t, b.ws)
			require.NoError(t, b.store.Close())
			entries, err := os.ReadDir(filepath.Join(b.dir, "store/packs"))
			require.NoError(t, err)
			for _, e := range entries {
				p := filepath.Join(b.dir, "store/packs", e.Name())
				content, err := os.ReadFile(p)
				require.NoError(t, err)
				if bytes.Contains(content, []byte("UNIQUE")) {
					require.NoError(t, os.WriteFile(p, harm(content), 0o600))
				}
			}
			s := openStore(t, b.dir)
			_, err = s.Restore(context.Background(), second, nil)
			assert.Equal(t, tool.Unavailable, tool.KindOf(err))
			if name != "cut" {
				assert.ErrorContains(t, err, "sub/victim")
			}
			assert.Equal(t, before, tree(t, b.ws), "nothing has changed")
			damaged, err := s.Verify(context.Background())
			require.NoError(t, err)
			require.NotEmpty(t, damaged)
			assert.Equal(t, second, damaged[0].SnapshotID)
			_, err = s.Restore(context.Background(), first, nil)
			require.NoError(t, err, "the other one comes back")
			assert.Empty(t, leftovers(t, b.dir))
		})
	}
}

func TestAPackWithoutItsIndexIsReadAllTheSame(t *testing.T) {
	b := newBench(t)
	b.write("a", strings.Repeat("text ", 1000))
	want := tree(t, b.ws)
	id := b.create().ID
	require.NoError(t, b.store.Close())
	p := aPack(t, b.dir)
	info, err := os.Stat(p)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(p, info.Size()-5))
	b.store = openStore(t, b.dir)
	clearDir(t, b.ws)
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
}

// The limit on written bytes also holds in missing directories, and an error leaves none of the staged files.
func TestARestoreOfAMissingDirectoryIsBounded(t *testing.T) {
	b := newBench(t)
	b.write("d/e/f", strings.Repeat("x", 1000))
	b.write("d/g", strings.Repeat("y", 1000))
	id := b.create().ID
	clearDir(t, b.ws)
	b.store.opts.Limits.Bytes = 1999
	_, err := b.store.Restore(context.Background(), id, nil)
	assert.Equal(t, tool.Limit, tool.KindOf(err))
	assert.Empty(t, leftovers(t, b.dir))
	b.store.opts.Limits.Bytes = 2000
	assert.EqualValues(t, 4, b.restore(id).Added)
}

// A directory with more files than one worker creates in one batch, also in its subdirectories, is restored completely,
// with all times.
func TestALargeMissingDirectoryComesBackWhole(t *testing.T) {
	b := newBench(t)
	for i := range 3 * fileBatch {
		b.write(fmt.Sprintf("d/%03d", i), "x")
		b.write(fmt.Sprintf("d/e%d/%03d", i%3, i), "y")
	}
	require.NoError(t, os.Symlink("000", filepath.Join(b.ws, "d/link")))
	require.NoError(t, os.Mkdir(filepath.Join(b.ws, "d/empty"), 0o711))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "d"), 0o555))
	t.Cleanup(func() { clearDir(t, b.ws) })
	want := tree(t, b.ws)
	id := b.create().ID
	clearDir(t, b.ws)
	b.write("d", "a file in its place")
	r := b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
	assert.Empty(t, r.Conflicts)
	assert.Empty(t, leftovers(t, b.dir))
}

func TestWhatIsWrittenDuringARestoreIsInConflicts(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"a", "b", "c/d", "c/e"} {
		b.write(name, "as it was")
	}
	id := b.create().ID
	ctx := context.Background()
	stop := make(chan struct{})
	var writing sync.WaitGroup
	started := make(chan struct{})
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.WriteFile(filepath.Join(b.ws, "a"), bytes.Repeat([]byte("x"), i%100), 0o644)
			_ = os.Rename(filepath.Join(b.ws, "c"), filepath.Join(b.ws, "moved"))
			_ = os.Symlink("/nowhere", filepath.Join(b.ws, "c"))
			_ = os.Remove(filepath.Join(b.ws, "c"))
			_ = os.Rename(filepath.Join(b.ws, "moved"), filepath.Join(b.ws, "c"))
			if i == 3 {
				close(started)
			}
		}
	})
	<-started
	for range 10 {
		r, err := b.store.Restore(ctx, id, nil)
		require.NoError(t, err, causeOf(err))
		_, err = b.store.Create(ctx, nil)
		require.NoError(t, err, causeOf(err))
		for _, c := range r.Conflicts {
			assert.Contains(t, []string{"a", "b", "c", "moved", "c/d", "c/e", "moved/d", "moved/e"}, c)
		}
	}
	close(stop)
	writing.Wait()
	r := b.restore(id)
	assert.Empty(t, r.Conflicts)
	assert.Empty(t, leftovers(t, b.dir))
	content, err := os.ReadFile(filepath.Join(b.ws, "c/d"))
	require.NoError(t, err)
	assert.Equal(t, "as it was", string(content))
}

func TestLimitsAreKept(t *testing.T) {
	b := newBench(t)
	b.write("a", strings.Repeat("x", 1000))
	b.write("b", "x")
	require.NoError(t, b.store.Close())
	for _, limits := range []Limits{{Entries: 1}, {Bytes: 100}} {
		opts := options(t, b.dir)
		opts.Limits = limits
		s, err := New(opts)
		require.NoError(t, err)
		_, err = s.Create(context.Background(), nil)
		assert.Equal(t, tool.Limit, tool.KindOf(err), err)
		require.NoError(t, s.Close())
	}
	assert.Empty(t, leftovers(t, b.dir))
}

func TestTheToolsSpeakTheContract(t *testing.T) {
	b := newBench(t)
	set := tool.NewSet(b.store.Tools()...)
	call := func(name, args string) (map[string]any, error) {
		res, err := set.Call(context.Background(), name, json.RawMessage(args))
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(res.Value)
		require.NoError(t, err)
		out := map[string]any{}
		require.NoError(t, json.Unmarshal(raw, &out))
		assert.NotEmpty(t, res.Text)
		return out, nil
	}
	b.write("c", "1\n")
	b.write("r", "r")
	b.write("bin", "\x00a")
	made, err := call("snapshot_create", `{"label":"first"}`)
	require.NoError(t, err)
	id := made["snapshot_id"].(string)
	b.write("c", "2\n")
	b.write("a", "new")
	b.write("bin", "\x00b")
	require.NoError(t, os.Remove(filepath.Join(b.ws, "r")))
	diff, err := call("snapshot_diff", `{"from":"`+id+`"}`)
	require.NoError(t, err)
	changed := diff["changed"].([]any)
	assert.Len(t, changed, 2)
	assert.NotContains(t, changed[0], "diff", "a binary file's bytes are not shown")
	assert.Contains(t, changed[1].(map[string]any)["diff"], "-1\n+2\n")
	assert.Equal(t, "a", diff["added"].([]any)[0].(map[string]any)["path"])
	assert.Equal(t, "r", diff["removed"].([]any)[0].(map[string]any)["path"])
	_, err = call("snapshot_restore", `{"snapshot_id":"`+id+`"}`)
	require.NoError(t, err)
	diff, err = call("snapshot_diff", `{"from":"`+id+`"}`)
	require.NoError(t, err)
	assert.Empty(t, diff["changed"])
	list, err := call("snapshot_list", `{}`)
	require.NoError(t, err)
	assert.Len(t, list["snapshots"], 1)
	for _, label := range []string{`"a\u0000b"`, `"` + strings.Repeat("l", 300) + `"`, `"two\nlines"`} {
		_, err = call("snapshot_create", `{"label":`+label+`}`)
		assert.Equal(t, tool.Invalid, tool.KindOf(err))
		assert.Equal(t, "label", tool.AsError(err).Field)
		assert.ErrorContains(t, err, "label")
	}
	_, err = call("snapshot_restore", `{"snapshot_id":7}`)
	assert.ErrorContains(t, err, "snapshot_id")
}

func TestAnArchiveCarriesAWorkspace(t *testing.T) {
	b := newBench(t)
	b.write("d/f", strings.Repeat("v1 ", 100))
	b.create()
	b.write("d/f", "v2")
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(b.ws, "l")))
	want := tree(t, b.ws)
	var archive bytes.Buffer
	_, err := b.store.Export(context.Background(), &archive, map[string][]byte{"session.json": []byte("{}")})
	require.NoError(t, err)

	other := newBench(t)
	extra, err := load(other, archive.Bytes())
	require.NoError(t, err, causeOf(err))
	assert.Equal(t, map[string][]byte{"session.json": []byte("{}")}, extra)
	assert.Equal(t, want, tree(t, other.ws))
	list, err := other.store.List(context.Background())
	require.NoError(t, err)
	assert.Len(t, list, 2)
	_, err = load(other, archive.Bytes())
	assert.Equal(t, tool.Exists, tool.KindOf(err))
}

func load(b *bench, archive []byte) (map[string][]byte, error) {
	a, err := OpenArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, err
	}
	return a.Extra, b.store.Import(context.Background(), a)
}

func TestADamagedArchiveLeavesNothing(t *testing.T) {
	b := newBench(t)
	b.write("d/f", strings.Repeat("v1 ", 100))
	var archive bytes.Buffer
	_, err := b.store.Export(context.Background(), &archive, nil)
	require.NoError(t, err)
	other := newBench(t)
	rapid.Check(t, func(rt *rapid.T) {
		harmed := bytes.Clone(archive.Bytes())
		if rapid.Bool().Draw(rt, "cut") {
			harmed = harmed[:rapid.IntRange(0, len(harmed)-2_000).Draw(rt, "length")]
		} else {
			harmed[rapid.IntRange(0, len(harmed)-1).Draw(rt, "at")] ^= byte(rapid.IntRange(1, 255).Draw(rt, "bits"))
		}
		_, err := load(other, harmed)
		if err == nil { // the damage hit padding
			list, err := other.store.List(context.Background())
			require.NoError(rt, err)
			for _, i := range list {
				require.NoError(rt, other.store.Remove(context.Background(), i.ID))
			}
		}
		require.Empty(rt, leftovers(t, other.dir))
		for _, d := range []string{"packs", "records"} {
			entries, err := os.ReadDir(filepath.Join(other.dir, "store", d))
			require.NoError(rt, err)
			require.Empty(rt, entries)
		}
	})
}

func TestACloneIsItsOwn(t *testing.T) {
	b, other := newBench(t), newBench(t)
	b.write("d/f", "shared")
	id := b.create().ID
	_, err := b.store.CloneTo(context.Background(), id, other.store)
	require.NoError(t, err)
	assert.Equal(t, tree(t, b.ws), tree(t, other.ws))
	other.write("d/f", "its own")
	require.NoError(t, b.store.Remove(context.Background(), id))
	other.restore(id)
	assert.Equal(t, tree(t, b.ws), tree(t, other.ws))
}

func TestAFullDiskChangesNothing(t *testing.T) {
	dir := t.TempDir()
	hosttest.Tmpfs(t, dir, "size=1m")
	for _, d := range []string{"ws", "tmp", "store"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, d), 0o700))
	}
	s := openStore(t, dir)
	noise := make([]byte, 300<<10)
	_, err := io.ReadFull(randomness(t), noise)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ws/a"), noise, 0o644))
	info, err := s.Create(context.Background(), nil)
	require.NoError(t, err)
	noise[0] ^= 1
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ws/a"), noise, 0o644))
	filler := filepath.Join(dir, "store/filler")
	require.Error(t, os.WriteFile(filler, make([]byte, 1<<20), 0o600))
	before := tree(t, filepath.Join(dir, "ws"))
	_, err = s.Restore(context.Background(), info.ID, nil)
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), causeOf(err))
	_, err = s.Create(context.Background(), nil)
	assert.Equal(t, tool.NoSpace, tool.KindOf(err), causeOf(err))
	assert.Equal(t, before, tree(t, filepath.Join(dir, "ws")))
	require.NoError(t, os.Remove(filler))
	assert.Empty(t, leftovers(t, dir))
	_, err = s.Restore(context.Background(), info.ID, nil)
	require.NoError(t, err)
}

func randomness(t *testing.T) io.Reader {
	t.Helper()
	f, err := os.Open("/dev/urandom")
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestForbiddenModesAreNoObstacle(t *testing.T) {
	b := newBench(t)
	b.write("locked/in/f", "x")
	b.write("g", "y")
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "g"), 0))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "locked/in"), fs.FileMode(0o500)))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "locked"), 0))
	want := tree(t, b.ws)
	id := b.create().ID
	clearDir(t, b.ws)
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))

	clearDir(t, b.ws)
	b.write("g/in", "where a file was")
	b.write("locked", "where a directory was")
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "g"), fs.FileMode(0o500)))
	b.restore(id)
	assert.Equal(t, want, tree(t, b.ws))
}

func TestNamesOfOneFileGetTheirOwnModesBack(t *testing.T) {
	b := newBench(t)
	b.write("f", "x")
	b.write("g", "x")
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "g"), 0o600))
	want, id := tree(t, b.ws), b.create().ID
	require.NoError(t, os.Remove(filepath.Join(b.ws, "g")))
	require.NoError(t, os.Link(filepath.Join(b.ws, "f"), filepath.Join(b.ws, "g")))
	require.NoError(t, os.Chmod(filepath.Join(b.ws, "f"), 0o640))
	assert.Empty(t, b.restore(id).Conflicts)
	assert.Equal(t, want, tree(t, b.ws))
}
