package vfs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

func write(path, content string, mode vfs.WriteMode) vfs.Write {
	return vfs.Write{Path: path, Content: []byte(content), Mode: mode}
}

func TestApplyMakesAllWrites(t *testing.T) {
	w := newWorld(t)
	w.file("old", "1")
	w.file("log", "a")
	done, err := w.fs.Apply(t.Context(), []vfs.Write{
		write("n/e/w", "new", ""), write("old", "2", vfs.Overwrite), write("/workspace/log", "b", vfs.Append), write("n/e/x", "x", vfs.Create),
	})
	require.NoError(t, err)
	require.Len(t, done, 4)
	assert.Equal(t, vfs.Written{Path: "n/e/w", SizeBytes: 3, Version: 1, Created: true, SHA256: sum("new")}, done[0])
	assert.Equal(t, vfs.Written{Path: "log", SizeBytes: 2, Version: 2, SHA256: sum("ab")}, done[2])
	assert.Equal(t, []string{"new", "2", "ab"}, []string{w.content("n/e/w"), w.content("old"), w.content("log")})
}

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestApplyMakesAllWritesOrNone(t *testing.T) {
	for name, last := range map[string]vfs.Write{
		"exists":          write("taken", "x", vfs.Create),
		"missing":         write("nothere", "x", vfs.Overwrite),
		"escape":          write("out/x", "x", vfs.Create),
		"below a file":    write("a/b/new/x", "x", vfs.Create),
		"twice":           write("a/b/new", "x", vfs.Create),
		"append, aliased": write("alias", "x", vfs.Append),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.file("taken", "t")
			w.file("old", "1")
			w.link(w.outside, "out")
			w.link("old", "alias")
			_, err := w.fs.Apply(t.Context(), []vfs.Write{write("a/b/new", "new", vfs.Create), write("old", "2", vfs.Append), last})
			require.Error(t, err)
			assert.NotEqual(t, tool.Internal, tool.KindOf(err), "%v", err)
			assert.NoFileExists(t, w.at("a"))
			assert.Equal(t, "1", w.content("old"))
			assert.Equal(t, "t", w.content("taken"))
		})
	}
}

func TestApplyRefusesBadWrites(t *testing.T) {
	w := newWorld(t)
	for _, bad := range []vfs.Write{write("../x", "", ""), write("", "", ""), write("/workspace", "", ""), write("f", "", "truncate")} {
		_, err := w.fs.Apply(t.Context(), []vfs.Write{bad})
		assert.Equal(t, tool.Invalid, tool.KindOf(err), bad.Path)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	w.file("d/a", "x")
	n, err := w.fs.Delete(t.Context(), "d")
	require.NoError(t, err)
	assert.EqualValues(t, 2, n)
	_, err = w.fs.Delete(t.Context(), "d")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
	_, err = w.fs.Delete(t.Context(), "/workspace")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestRm(t *testing.T) {
	w := newWorld(t)
	assert.Equal(t, "path", w.refused(tool.NotFound, "rm", `{"path":"nothere"}`).Field)
	assert.Equal(t, 0.0, w.ok("rm", `{"path":"nothere","allow_missing":true}`)["deleted"])
	assert.Equal(t, 0.0, w.ok("rm", `{"path":"no/where","allow_missing":true}`)["deleted"])
	w.link(w.outside, "d")
	w.refused(tool.Escape, "rm", `{"path":"d/leak.txt"}`)
	assert.Equal(t, 1.0, w.ok("rm", `{"path":"d/"}`)["deleted"])
	w.link(w.outside, "t/a/d")
	w.link("/workspace/keep", "t/in")
	w.file("keep", "x")
	w.fifo("t/p")
	assert.Equal(t, 5.0, w.ok("rm", `{"path":"t"}`)["deleted"])
	w.refused(tool.NotDir, "rm", `{"path":"keep/x"}`)
	assert.Equal(t, "x", w.content("keep"))
}

// TestEditsOfManyCallersAreNotLost increments a number in one file from many goroutines of two FS
// with one lock, as two processes would.
func TestEditsOfManyCallersAreNotLost(t *testing.T) {
	lock := make(chan struct{}, 1)
	w := newWorld(t, func(o *vfs.Options) {
		o.Lock = func(ctx context.Context) (func(), error) {
			select {
			case lock <- struct{}{}:
				return func() { <-lock }, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	other, err := vfs.New(&w.opts)
	require.NoError(t, err)
	defer other.Close()
	w.file("n", "")
	var wg sync.WaitGroup
	for i := range 8 {
		files := []*vfs.FS{w.fs, other}[i%2]
		wg.Go(func() {
			for range 25 {
				_, err := files.Apply(context.Background(), []vfs.Write{write("n", "+", vfs.Append)})
				assert.NoError(t, err)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, strings.Repeat("+", 200), w.content("n"))
}

func TestAHeldLockIsBusy(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) {
		o.Lock = func(context.Context) (func(), error) { return nil, tool.Errorf(tool.Busy, "held") }
	})
	w.refused(tool.Busy, "write_file", `{"file_path":"f","content":"x"}`)
	assert.NoFileExists(t, w.at("f"))
}

func TestReadersSeeTheOldFileOrTheNew(t *testing.T) {
	w := newWorld(t)
	w.file("n", strings.Repeat("a", 40_000))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 300 {
			content := strings.Repeat(string(rune('a'+i%26)), 40_000)
			_, err := w.fs.Apply(context.Background(), []vfs.Write{write("n", content, vfs.Overwrite)})
			assert.NoError(t, err)
		}
	}()
	for reads := 0; ; reads++ {
		data, err := os.ReadFile(w.at("n"))
		require.NoError(t, err)
		require.Len(t, data, 40_000)
		require.Equal(t, 40_000, strings.Count(string(data), string(data[:1])))
		select {
		case <-done:
			assert.Positive(t, reads)
			return
		default:
		}
	}
}

// TestAFullDiskLeavesTheOldFileWhole needs its own file systems: one runs out of bytes, one out of
// inodes.
func TestAFullDiskLeavesTheOldFileWhole(t *testing.T) {
	for name, options := range map[string]string{"bytes": "size=1m", "inodes": "size=16m,nr_inodes=40"} {
		t.Run(name, func(t *testing.T) {
			w := newWorldIn(t, smallDisk(t, options))
			w.ok("write_file", args(map[string]any{"file_path": "f", "content": strings.Repeat("o", 40_000)}))
			big := args(map[string]any{"file_path": "f", "content": strings.Repeat("n", 48_000), "mode": "append"})
			for i := 0; ; i++ {
				if _, err := w.call("write_file", args(map[string]any{"file_path": fmt.Sprintf("fill%d", i), "content": strings.Repeat("x", 48_000)})); err != nil {
					require.Equal(t, tool.NoSpace, tool.KindOf(err))
					break
				}
				require.Less(t, i, 100)
			}
			if name == "inodes" { // an append needs none
				w.ok("write_file", big)
				return
			}
			w.refused(tool.NoSpace, "write_file", big)
			for i := 0; ; i++ { // to the last page
				if os.WriteFile(w.at(fmt.Sprintf("page%d", i)), make([]byte, 4096), 0o600) != nil {
					break
				}
			}
			w.fs.SetInPlace(func() bool { return true })
			w.refused(tool.NoSpace, "edit_file", args(map[string]any{"file_path": "f", "old_string": strings.Repeat("o", 40_000), "new_string": strings.Repeat("n", 48_000)}))
			assert.Equal(t, strings.Repeat("o", 40_000), w.content("f"))
			temps, err := os.ReadDir(filepath.Join(filepath.Dir(w.path), "tmp"))
			require.NoError(t, err)
			assert.Empty(t, temps, "a temporary file is left")
			w.ok("rm", `{"path":"fill0"}`)
			w.ok("rm", `{"path":"fill1"}`)
			w.ok("write_file", big)
		})
	}
}

func TestSlowLocksEndWithTheirCaller(t *testing.T) {
	w := newWorld(t, func(o *vfs.Options) {
		o.Lock = func(ctx context.Context) (func(), error) { <-ctx.Done(); return nil, ctx.Err() }
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := w.tools["write_file"].Call(ctx, []byte(`{"file_path":"f","content":"x"}`))
	assert.Equal(t, tool.Timeout, tool.KindOf(err))
}

// move_file is for adapters, so it is no entry of a set's list.
func TestMoveFile(t *testing.T) {
	w := newWorld(t)
	set := tool.NewSet(w.fs.Tools()...)
	move := func(from, to string) error {
		raw, err := json.Marshal(map[string]string{"path": from, "to": to})
		require.NoError(t, err)
		res, err := set.Call(t.Context(), "move_file", raw)
		if err == nil {
			assert.Equal(t, []tool.Change{{Path: from, Removed: true}, {Path: to}}, res.Changes)
		}
		return err
	}
	for _, listed := range set.Tools() {
		assert.NotEqual(t, "move_file", listed.Name)
	}
	path := func(name string) string { return filepath.Join(w.path, name) }
	require.NoError(t, os.WriteFile(path("bin"), []byte("\xff\x00"), 0o755))
	require.NoError(t, os.Symlink("nowhere", path("link")))
	require.NoError(t, os.Mkdir(path("dir"), 0o755))
	require.NoError(t, move("bin", "new/deep/bin"))
	info, err := os.Stat(path("new/deep/bin"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	require.NoError(t, move("link", "new/link"))
	text, err := os.Readlink(path("new/link"))
	require.NoError(t, err)
	assert.Equal(t, "nowhere", text)
	require.NoError(t, os.WriteFile(path("f"), []byte("f"), 0o644))
	for _, c := range []struct {
		from, to, field string
		kind            tool.Kind
	}{
		{"none", "x", "path", tool.NotFound}, {"dir", "x", "path", tool.IsDir}, {"f", "new/link", "to", tool.Exists}, {"f", "dir", "to", tool.Exists}, {"f", "f", "to", tool.Exists},
		{"../f", "x", "path", tool.Invalid}, {"f", "../x", "to", tool.Invalid}, {"f", "/", "to", tool.Invalid}, {"f", "made/../x", "to", tool.Invalid}, {"f", "new/deep/bin/x", "to", tool.NotDir},
	} {
		err := move(c.from, c.to)
		assert.Equal(t, c.kind, tool.KindOf(err), "%s %s: %v", c.from, c.to, err)
		assert.Equal(t, c.field, tool.AsError(err).Field, "%s %s", c.from, c.to)
	}
	require.NoError(t, os.Symlink(w.outside, path("out")))
	assert.Equal(t, tool.Escape, tool.KindOf(move("f", "out/f")))
	assert.Equal(t, tool.Escape, tool.KindOf(move("out/leak.txt", "leak")))
	assert.FileExists(t, path("f"))
}
