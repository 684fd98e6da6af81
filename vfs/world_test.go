package vfs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

const canary = "WISBOX-CANARY-4242"

// world is a workspace, and a directory outside it that nothing may touch.
type world struct {
	testing.TB
	path    string // of the workspace on the host
	outside string
	opts    vfs.Options
	fs      *vfs.FS
	tools   map[string]tool.Tool
}

func newWorld(t testing.TB, change ...func(*vfs.Options)) *world {
	t.Helper()
	return newWorldIn(t, t.TempDir(), change...)
}

// newLargeWorld is newWorld for very many entries.
func newLargeWorld(t testing.TB) *world {
	t.Helper()
	return newWorldIn(t, hosttest.InMemory(t))
}

func newWorldIn(t testing.TB, base string, change ...func(*vfs.Options)) *world {
	t.Helper()
	w := &world{TB: t, path: filepath.Join(base, "workspace"), outside: filepath.Join(base, "outside")}
	for _, dir := range []string{w.path, w.outside, filepath.Join(base, "tmp")} {
		require.NoError(t, os.Mkdir(dir, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(w.outside, "leak.txt"), []byte(canary), 0o644))
	root, err := os.OpenRoot(w.path)
	require.NoError(t, err)
	tmp, err := os.OpenRoot(filepath.Join(base, "tmp"))
	require.NoError(t, err)
	w.opts = vfs.Options{Root: root, Tmp: tmp}
	for _, c := range change {
		c(&w.opts)
	}
	w.reopen()
	t.Cleanup(func() {
		require.NoError(t, errors.Join(w.fs.Close(), root.Close(), tmp.Close()))
		w.untouched()
	})
	return w
}

// reopen opens the workspace again, like the session's next process.
func (w *world) reopen() {
	w.Helper()
	if w.fs != nil {
		require.NoError(w, w.fs.Close())
	}
	files, err := vfs.New(&w.opts)
	require.NoError(w, err)
	w.fs, w.tools = files, byName(files)
}

func byName(f *vfs.FS) map[string]tool.Tool {
	tools := map[string]tool.Tool{}
	for _, t := range f.Tools() {
		tools[t.Name] = t
	}
	return tools
}

// untouched is checked after every test: nothing outside has changed, and no staged file is left.
func (w *world) untouched() {
	entries, err := os.ReadDir(w.outside)
	require.NoError(w, err)
	assert.Len(w, entries, 1)
	data, err := os.ReadFile(filepath.Join(w.outside, "leak.txt"))
	require.NoError(w, err)
	assert.Equal(w, canary, string(data))
	staged, err := os.ReadDir(filepath.Join(w.path, "../tmp"))
	require.NoError(w, err)
	assert.Empty(w, staged)
}

func (w *world) at(name string) string { return filepath.Join(w.path, name) }

func (w *world) file(name, content string) {
	w.Helper()
	require.NoError(w, os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	require.NoError(w, os.WriteFile(w.at(name), []byte(content), 0o644))
}

func (w *world) dir(name string) {
	w.Helper()
	require.NoError(w, os.MkdirAll(w.at(name), 0o755))
}

func (w *world) link(text, name string) {
	w.Helper()
	require.NoError(w, os.MkdirAll(filepath.Dir(w.at(name)), 0o755))
	require.NoError(w, os.Symlink(text, w.at(name)))
}

func (w *world) fifo(name string) {
	w.Helper()
	require.NoError(w, syscall.Mkfifo(w.at(name), 0o644))
}

func (w *world) content(name string) string {
	w.Helper()
	data, err := os.ReadFile(w.at(name))
	require.NoError(w, err)
	return string(data)
}

func (w *world) many(name string, n int) {
	w.dir(name)
	dir, err := os.Open(w.at(name))
	require.NoError(w, err)
	defer dir.Close()
	for i := range n {
		require.NoError(w, unix.Mknodat(int(dir.Fd()), fmt.Sprintf("f%06d", i), unix.S_IFREG|0o644, 0))
	}
}

// deep creates name, levels deep, beyond the length of any path.
func (w *world) deep(name string, levels int) {
	w.dir(name)
	fd, err := unix.Open(w.at(name), unix.O_PATH, 0)
	require.NoError(w, err)
	for range levels {
		require.NoError(w, unix.Mkdirat(fd, "dddddddddd", 0o755))
		next, err := unix.Openat(fd, "dddddddddd", unix.O_PATH, 0)
		require.NoError(w, err)
		require.NoError(w, unix.Close(fd))
		fd = next
	}
	end, err := unix.Openat(fd, "bottom.txt", unix.O_CREAT|unix.O_WRONLY, 0o644)
	require.NoError(w, err)
	_, err = unix.Write(end, []byte("needle\n"))
	require.NoError(w, errors.Join(err, unix.Close(end), unix.Close(fd)))
}

func (w *world) call(name, args string) (*tool.Result, error) {
	return w.tools[name].Call(context.Background(), json.RawMessage(args))
}

// answer is a result object, in the form for clients.
type answer map[string]any

func (w *world) ok(name, args string) answer {
	w.Helper()
	res, err := w.call(name, args)
	require.NoError(w, err, "%s %s", name, args)
	require.NotEmpty(w, res.Text)
	raw, err := json.Marshal(res.Value)
	require.NoError(w, err)
	a := answer{"text": res.Text, "json": string(raw)}
	require.NoError(w, json.Unmarshal(raw, &a))
	return a
}

// each returns one field of all items of a list.
func (a answer) each(list, field string) []any {
	var out []any
	for _, item := range a[list].([]any) {
		out = append(out, item.(map[string]any)[field])
	}
	return out
}

func (w *world) refused(kind tool.Kind, name, args string) *tool.Error {
	w.Helper()
	_, err := w.call(name, args)
	e := (*tool.Error)(nil)
	require.ErrorAs(w, err, &e, "%s %s", name, args)
	require.Equal(w, kind, e.Kind, "%s %s: %v", name, args, err)
	require.NotContains(w, e.Message, filepath.Dir(w.path))
	require.NotContains(w, e.Message, canary)
	return e
}

func args(v map[string]any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// within fails if do takes more than 30 s: a tighter bound would fail on a busy machine.
func within(t testing.TB, do func()) {
	t.Helper()
	start := time.Now()
	do()
	assert.Less(t, time.Since(start), 30*time.Second)
}

// swapping exchanges two names as fast as possible until the test ends.
func (w *world) swapping(a, b string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		for ctx.Err() == nil {
			_ = unix.Renameat2(unix.AT_FDCWD, w.at(a), unix.AT_FDCWD, w.at(b), unix.RENAME_EXCHANGE)
		}
	}()
	stop = func() { cancel(); <-done }
	w.Cleanup(stop)
	return stop
}
