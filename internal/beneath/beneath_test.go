package beneath_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/internal/sys"
	"github.com/wisbox/wisbox/tool/answer"
)

// world is a tree, its staging directory beside it, and a secret outside both.
type world struct {
	*testing.T
	path    string // of the tree on the host
	outside string
	tree    *beneath.Tree
	staging *beneath.Staging
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir())
}

func newWorldIn(t *testing.T, base string) *world {
	t.Helper()
	w := &world{T: t, path: filepath.Join(base, "workspace"), outside: filepath.Join(base, "outside")}
	for _, dir := range []string{w.path, w.outside, filepath.Join(base, "tmp")} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	w.file(filepath.Join(w.outside, "secret"), "canary")
	root, err := os.OpenRoot(w.path)
	require.NoError(t, err)
	tmp, err := os.OpenRoot(filepath.Join(base, "tmp"))
	require.NoError(t, err)
	w.tree, err = beneath.New(root, "/workspace")
	require.NoError(t, err)
	w.staging, err = beneath.NewStaging(tmp, nil, true)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(w.tree.Close(), w.staging.Close(), root.Close(), tmp.Close()))
	})
	return w
}

func (w *world) at(name string) string { return filepath.Join(w.path, name) }

func (w *world) file(path, content string) {
	require.NoError(w, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(w, os.WriteFile(path, []byte(content), 0o644))
}

func (w *world) link(text, name string) {
	require.NoError(w, os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	require.NoError(w, os.Symlink(text, w.at(name)))
}

func (w *world) read(name string) (content, where string, err error) {
	h, err := w.tree.Open(name)
	if err != nil {
		return "", "", err
	}
	defer h.Close()
	data, err := io.ReadAll(h)
	return string(data), h.Path, err
}

// bothWays runs a test over openat2 and element by element.
func bothWays(t *testing.T, test func(w *world)) {
	t.Run("openat2", func(t *testing.T) { test(newWorld(t)) })
	t.Run("stepwise", func(t *testing.T) {
		w := newWorld(t)
		beneath.ForcePlain(w.tree)
		test(w)
	})
}

func TestLinksThatStayInsideLeadToTheirTruePath(t *testing.T) {
	bothWays(t, func(w *world) {
		w.file(w.at("b/t"), "in")
		w.link("../b", "a/l")
		w.link("/workspace/b/t", "abs")
		w.link("/workspace", "top")
		w.link("abs", "chain")
		w.link("a/../b//./t", "dots")
		w.link("a/l/../b/t", "dotsOverLink")
		for _, name := range []string{"b/t", "a/l/t", "abs", "top/b/t", "chain", "dots", "dotsOverLink", "top/top/a/l/t"} {
			content, where, err := w.read(name)
			require.NoError(w, err, name)
			assert.Equal(w, "in", content, name)
			assert.Equal(w, "b/t", where, name)
			h, err := w.tree.Look(name)
			require.NoError(w, err, name)
			assert.Equal(w, "b/t", h.Path, "a look follows links too")
			assert.NoError(w, h.Close())
		}
	})
}

func TestWhatCannotBeReadSaysWhy(t *testing.T) {
	bothWays(t, func(w *world) {
		w.file(w.at("f"), "x")
		require.NoError(w, os.Mkdir(w.at("dir"), 0o755))
		require.NoError(w, syscall.Mkfifo(w.at("fifo"), 0o644))
		socket(w, w.at("sock"))
		w.link(filepath.Join(w.outside, "secret"), "out")
		w.link("../outside/secret", "climb")
		w.link(w.outside, "outdir")
		w.link("out", "outchain")
		w.link("/workspacex/y", "sibling")
		w.link("/workspace/../etc/passwd", "absclimb")
		w.link("/proc/self/root", "magic")
		w.link("loop2", "loop")
		w.link("loop", "loop2")
		w.link("nothere", "dangling")
		for name, kind := range map[string]answer.Kind{
			"missing": answer.NotFound, "dir": answer.IsDir, "fifo": answer.NotRegular, "sock": answer.NotRegular, "out": answer.Escape,
			"climb": answer.Escape, "outdir/secret": answer.Escape, "outchain": answer.Escape, "sibling": answer.Escape, "absclimb": answer.Escape,
			"magic/etc/hostname": answer.Escape, "loop": answer.NotRegular, "dangling": answer.NotFound, "f/x": answer.NotDir,
		} {
			start := time.Now()
			_, _, err := w.read(name)
			require.Error(w, err, name)
			e := beneath.Error(err, name)
			assert.Equal(w, kind, e.Kind, "%s: %v", name, err)
			assert.NotContains(w, e.Message, w.outside)
			assert.Less(w, time.Since(start), 30*time.Second, name)
		}
	})
}

func TestOpenBelowFollowsNoLink(t *testing.T) {
	w := newWorld(t)
	w.file(w.at("a/b/f"), "x")
	w.link("a", "l")
	w.link(w.outside, "a/out")
	require.NoError(t, unix.Mkfifo(w.at("a/fifo"), 0o644))
	dir := int(w.tree.Dir().Fd())
	for name, open := range map[string]func(int, string, int) (int, error){"openat2": beneath.OpenBelow, "stepwise": beneath.OpenStepwise} {
		for _, rel := range []string{"", "a", "a/b", "a/b/f", "a/fifo"} { // a FIFO doesn't block
			for _, flags := range []int{unix.O_RDONLY, sys.Place} {
				fd, err := open(dir, rel, flags)
				require.NoError(t, err, "%s %q", name, rel)
				require.NoError(t, unix.Close(fd))
			}
		}
		for _, rel := range []string{"l", "l/b", "a/out", "a/out/secret", "../outside", "a/../../outside", "/etc"} {
			fd, err := open(dir, rel, unix.O_RDONLY)
			require.Error(t, err, "%s %q", name, rel)
			require.Equal(t, -1, fd)
		}
	}
}

func socket(t testing.TB, path string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path}))
}

func TestAnotherFileSystemIsNotBelow(t *testing.T) {
	bothWays(t, func(w *world) {
		require.NoError(w, os.Mkdir(w.at("mounted"), 0o755))
		hosttest.Tmpfs(w, w.at("mounted"), "")
		w.file(w.at("mounted/f"), "x")
		_, _, err := w.read("mounted/f")
		require.Error(w, err)
		assert.Equal(w, answer.Escape, beneath.Error(err, "f").Kind, "%v", err)
	})
}

func TestOnlyARegularFileGetsAnotherName(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, unix.Mkfifo(w.at("fifo"), 0o644))
	w.link(filepath.Join(w.outside, "secret"), "out")
	to, err := w.tree.Parent("to")
	require.NoError(t, err)
	defer to.Close()
	for _, name := range []string{"fifo", "out"} {
		from, err := w.tree.Parent(name)
		require.NoError(t, err)
		assert.ErrorIs(t, to.Link(from), beneath.ErrNotRegular, name)
		from.Close()
		_, err = os.Lstat(w.at("to"))
		assert.ErrorIs(t, err, os.ErrNotExist, name)
	}
}

func TestLongChainsOfLinksEnd(t *testing.T) {
	w := newWorld(t)
	w.file(w.at("l0"), "end")
	for i := range 50 {
		w.link(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i+1))
	}
	content, _, err := w.read("l40")
	require.NoError(t, err)
	assert.Equal(t, "end", content)
	_, _, err = w.read("l41")
	assert.ErrorIs(t, err, unix.ELOOP)
	w.link(strings.Repeat("./", 2000)+"l0", "long0")
	for i := range 20 {
		w.link(strings.Repeat("./", 1990)+fmt.Sprintf("long%d", i), fmt.Sprintf("long%d", i+1))
	}
	start := time.Now()
	_, _, err = w.read("long20")
	assert.ErrorIs(t, err, unix.ELOOP)
	assert.Less(t, time.Since(start), 30*time.Second)
}

func TestParentsAreMadeInsideOnly(t *testing.T) {
	w := newWorld(t)
	w.link(w.outside, "out")
	w.link("nothere", "dangling")
	require.NoError(t, os.Mkdir(w.at("real"), 0o755))
	w.link("real", "in")
	_, _, err := w.tree.MakeParent("out/a/b/f", w.staging)
	require.ErrorIs(t, err, beneath.ErrEscape)
	_, _, err = w.tree.MakeParent("dangling/a/f", w.staging)
	require.ErrorIs(t, err, unix.ENOENT)
	p, made, err := w.tree.MakeParent("in/a/b/f", w.staging)
	require.NoError(t, err)
	assert.Equal(t, "real/a/b/f", p.Path)
	assert.DirExists(t, w.at("real/a/b"))
	p.Close()
	made.Undo()
	assert.NoDirExists(t, w.at("real/a"))
	assert.NoFileExists(t, filepath.Join(w.outside, "a"))
}

func TestSwapPutsBackWhatIsNotWhatWasMeant(t *testing.T) {
	w := newWorld(t)
	w.file(w.at("f"), "theirs")
	p, err := w.tree.Parent("f")
	require.NoError(t, err)
	defer p.Close()
	tmp, err := w.staging.Create(0o644)
	require.NoError(t, err)
	_, err = tmp.WriteString("ours")
	require.NoError(t, err)
	require.ErrorIs(t, tmp.Swap(p, func(*unix.Stat_t) bool { return false }), beneath.ErrChanged)
	content, _, err := w.read("f")
	require.NoError(t, err)
	assert.Equal(t, "theirs", content)
	require.NoError(t, tmp.Swap(p, func(*unix.Stat_t) bool { return true }))
	tmp.Discard()
	content, _, err = w.read("f")
	require.NoError(t, err)
	assert.Equal(t, "ours", content)
	entries, err := os.ReadDir(filepath.Join(w.path, "../tmp"))
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestPlaceNeverReplaces(t *testing.T) {
	w := newWorld(t)
	w.link(filepath.Join(w.outside, "created"), "l")
	p, err := w.tree.Parent("l")
	require.NoError(t, err)
	defer p.Close()
	tmp, err := w.staging.Create(0o644)
	require.NoError(t, err)
	require.ErrorIs(t, tmp.Place(p), unix.EEXIST)
	tmp.Discard()
	assert.NoFileExists(t, filepath.Join(w.outside, "created"))
}

func TestSweepRemovesOnlyWhatIsStaged(t *testing.T) {
	w := newWorld(t)
	tmp, err := w.staging.Create(0o600)
	require.NoError(t, err)
	defer tmp.Close()
	w.file(filepath.Join(w.path, "../tmp/other"), "x")
	require.NoError(t, w.staging.Sweep())
	entries, err := os.ReadDir(filepath.Join(w.path, "../tmp"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, "other", entries[0].Name())
}

// TestRacingSwapsNeverLeave reads and writes through a name that is exchanged with a link to the
// outside as fast as possible.
func TestRacingSwapsNeverLeave(t *testing.T) {
	bothWays(t, func(w *world) {
		w.file(w.at("d/secret"), "inside")
		w.link(w.outside, "out")
		swapping(w, "d", "out")
		for i := range 3000 {
			if content, _, err := w.read("d/secret"); err == nil {
				require.Equal(w, "inside", content)
			}
			p, made, err := w.tree.MakeParent(fmt.Sprintf("d/n%d/f", i%50), w.staging)
			made.Close()
			if err == nil {
				p.Close()
			}
		}
		entries, err := os.ReadDir(w.outside)
		require.NoError(w, err)
		assert.Len(w, entries, 1)
	})
}

// A file that a tool replaces leaves the tree by an exchange of names. A program that opens the
// file at that moment has not been led out of the tree.
func TestAFileThatIsBeingReplacedDoesNotLeadOut(t *testing.T) {
	bothWays(t, func(w *world) {
		w.file(w.at("f"), "inside")
		w.file(filepath.Join(w.outside, "f"), "replaced")
		swapping(w, "f", "../outside/f")
		for range 20_000 {
			_, _, err := w.read("f")
			require.NoError(w, err)
			place, err := w.tree.Look("f")
			require.NoError(w, err)
			require.NoError(w, place.Close())
		}
	})
}

func swapping(w *world, a, b string) {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for ctx.Err() == nil {
			_ = sys.Rename(unix.AT_FDCWD, w.at(a), unix.AT_FDCWD, w.at(b), sys.Exchange)
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
}

func TestRemoveAllCountsWhatItRemoves(t *testing.T) {
	w := newWorld(t)
	w.file(w.at("t/a/b/c"), "x")
	w.file(w.at("t/a/d"), "x")
	w.file(w.at("t/\xff\n"), "x")
	w.link(w.outside, "t/out")
	w.link(filepath.Join(w.outside, "secret"), "t/a/b/l")
	require.NoError(t, syscall.Mkfifo(w.at("t/p"), 0o644))
	socket(t, w.at("t/s"))
	n, err := beneath.RemoveAll(w.tree.Dir(), "t")
	require.NoError(t, err)
	assert.EqualValues(t, 10, n)
	assert.NoFileExists(t, w.at("t"))
	assert.FileExists(t, filepath.Join(w.outside, "secret"))
	_, err = beneath.RemoveAll(w.tree.Dir(), "t")
	assert.ErrorIs(t, err, fs.ErrNotExist)
	w.link(w.outside, "l")
	n, err = beneath.RemoveAll(w.tree.Dir(), "l")
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	for _, name := range []string{"", ".", "..", "a/b"} {
		_, err = beneath.RemoveAll(w.tree.Dir(), name)
		assert.ErrorIs(t, err, fs.ErrInvalid)
	}
}

func TestRemoveAllOfDeepAndWideTrees(t *testing.T) {
	w := newWorldIn(t, hosttest.InMemory(t))
	deep(t, w.at(""), "deep", 5_000)
	for i := range 1_500 { // more subdirectories than may wait at the top
		require.NoError(t, os.MkdirAll(w.at(fmt.Sprintf("wide/m/%d/x/y", i)), 0o755))
	}
	before := openFiles(t)
	n, err := beneath.RemoveAll(w.tree.Dir(), "deep")
	require.NoError(t, err)
	assert.EqualValues(t, 5_001, n)
	n, err = beneath.RemoveAll(w.tree.Dir(), "wide")
	require.NoError(t, err)
	assert.EqualValues(t, 2+3*1_500, n)
	assert.Equal(t, before, openFiles(t))
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/dev/fd")
	require.NoError(t, err)
	return len(entries)
}

// deep creates name below dir, levels deep, beyond the length of any path.
func deep(t *testing.T, dir, name string, levels int) {
	require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	fd, err := unix.Open(filepath.Join(dir, name), sys.Place, 0)
	require.NoError(t, err)
	for range levels {
		require.NoError(t, unix.Mkdirat(fd, "dddddddddd", 0o755))
		next, err := unix.Openat(fd, "dddddddddd", sys.Place, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
		fd = next
	}
	require.NoError(t, unix.Close(fd))
}

func TestRemoveAllOfManyFiles(t *testing.T) {
	w := newWorldIn(t, hosttest.InMemory(t))
	require.NoError(t, os.Mkdir(w.at("many"), 0o755))
	dir, err := os.Open(w.at("many"))
	require.NoError(t, err)
	defer dir.Close()
	for i := range 20_000 {
		fd, err := unix.Openat(int(dir.Fd()), fmt.Sprintf("f%06d", i), unix.O_WRONLY|unix.O_CREAT, 0o644)
		require.NoError(t, err)
		require.NoError(t, unix.Close(fd))
	}
	n, err := beneath.RemoveAll(w.tree.Dir(), "many")
	require.NoError(t, err)
	assert.EqualValues(t, 20_001, n)
}

func TestRemoveAllEndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	w.file(w.at("t/f"), "x")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := beneath.RemoveAllContext(ctx, w.tree.Dir(), "t")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestForbiddenModes(t *testing.T) {
	if hosttest.AsNobody(t) {
		return
	}
	w := newWorld(t)
	w.file(w.at("t/a/b/c"), "x")
	w.file(w.at("t/a/secret"), "x")
	require.NoError(t, os.Chmod(w.at("t/a/secret"), 0))
	_, _, err := w.read("t/a/secret")
	assert.Equal(t, answer.Permission, beneath.Error(err, "x").Kind)
	for _, dir := range []string{"t/a/b", "t/a", "t"} {
		require.NoError(t, os.Chmod(w.at(dir), 0))
	}
	_, _, err = w.read("t/a/b/c")
	assert.Equal(t, answer.Permission, beneath.Error(err, "x").Kind)
	n, err := beneath.RemoveAll(w.tree.Dir(), "t")
	require.NoError(t, err)
	assert.EqualValues(t, 5, n)
}
