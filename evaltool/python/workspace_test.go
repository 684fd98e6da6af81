package python_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// workbench is the whole tool, with this engine and a real workspace.
type workbench struct {
	*bench
	set *tool.Set
}

func newWorkbench(t *testing.T) *workbench {
	t.Helper()
	b := newBench(t)
	root, err := os.OpenRoot(b.workspace)
	require.NoError(t, err)
	tmp, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	files, err := vfs.New(&vfs.Options{Root: root, Tmp: tmp})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, files.Close())
		assert.NoError(t, root.Close())
		assert.NoError(t, tmp.Close())
	})
	e, err := evaltool.New(&evaltool.Options{Files: files, Container: b.Engine, MaxTimeout: 20e9})
	require.NoError(t, err)
	return &workbench{b, tool.NewSet(e.Tools()...)}
}

func (w *workbench) call(args string) (*tool.Result, error) {
	return w.set.Call(context.Background(), "evaluate_python", json.RawMessage(strings.Replace(args, "{", `{"timeout":20,`, 1)))
}

func (w *workbench) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(w.workspace, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func (w *workbench) get(name string) string {
	data, err := os.ReadFile(filepath.Join(w.workspace, name))
	if err != nil {
		return "<" + string(tool.KindOf(err)) + ">"
	}
	return string(data)
}

func TestACallReadsEvaluatesAndWrites(t *testing.T) {
	w := newWorkbench(t)
	w.put(t, "d/in.txt", "hi")
	res, err := w.call(`{"code":"n = reads['d/in.txt'].upper()\nwrite_text('new/q', n * 2)\nn","reads":[{"path":"/d/in.txt"}],"writes":[{"path":"o.txt","content":"got {n}\n"}]}`)
	require.NoError(t, err)
	r := res.Value.(evaltool.Result)
	require.False(t, res.Failed, r.Stderr)
	assert.Equal(t, "'HI'", *r.ValueRepr)
	assert.Equal(t, map[string]string{"n": `"HI"`}, r.Globals)
	assert.Equal(t, "got HI\n", w.get("o.txt"))
	assert.Equal(t, "HIHI", w.get("new/q"))
	assert.Equal(t, []evaltool.ReadDone{{Path: "d/in.txt", SizeBytes: 2, Version: 1}}, r.Reads)
	writes, err := json.Marshal(r.Writes)
	require.NoError(t, err)
	assert.JSONEq(t, `[{"path":"o.txt","mode":"create","size_bytes":7,"version":1,"content":"got HI\n"},{"path":"new/q","mode":"create","size_bytes":4,"version":1,"content":"HIHI"}]`, string(writes))
}

func TestQueuedModesWorkOnTheRealFiles(t *testing.T) {
	w := newWorkbench(t)
	w.put(t, "old", "old\n")
	w.put(t, "workspace/inner", "in\n")
	_, err := w.call(`{"code":"write_text('old', read_text('old') + 'new')\nwrite_text('log', 'x', 'append')\nwrite_text('workspace/workspace/inner', 'y', 'append')"}`)
	require.NoError(t, err)
	assert.Equal(t, "old\nnew", w.get("old"))
	assert.Equal(t, "x", w.get("log"))
	assert.Equal(t, "in\ny", w.get("workspace/inner"))
}

func TestOneRefusedWriteKeepsAllFromHappening(t *testing.T) {
	for _, c := range []struct {
		name, args string
		kind       tool.Kind
	}{
		{"unknown name", `{"code":"x = 1","writes":[{"path":"o1","content":"{x}"},{"path":"o2","content":"{missing_name}"}]}`, tool.Invalid},
		{"exists meanwhile", `{"code":"open('o2', 'w').close()","writes":[{"path":"o1","content":"x"},{"path":"o2","content":"x"}]}`, tool.Exists},
		{"overwrites nothing", `{"code":"1","writes":[{"path":"o1","content":"x"},{"path":"o2","content":"x","mode":"overwrite"}]}`, tool.NotFound},
		{"through a file", `{"code":"1","writes":[{"path":"o1","content":"x"},{"path":"f/o2","content":"x"}]}`, tool.NotDir},
		{"out by a link", `{"code":"import os; os.symlink('/tmp', 'l')\nwrite_text('o1', 'x')\nwrite_text('l/o2', 'x')"}`, tool.Escape},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorkbench(t)
			w.put(t, "f", "")
			_, err := w.call(c.args)
			assert.Equal(t, c.kind, tool.KindOf(err), "%v", err)
			assert.NoFileExists(t, filepath.Join(w.workspace, "o1"))
		})
	}
}

func TestNothingIsWrittenAfterAnException(t *testing.T) {
	w := newWorkbench(t)
	res, err := w.call(`{"code":"write_text('h', 'x')\nn = 12\n1/0","writes":[{"path":"o","content":"{n}!"}]}`)
	require.NoError(t, err)
	assert.True(t, res.Failed)
	assert.Contains(t, res.Text, "ZeroDivisionError")
	assert.Contains(t, res.Text, "nothing was written, because the code raised an exception; discarded: o (create, 3 bytes), h (overwrite, 1 bytes)")
	assert.Contains(t, res.Text, "  n = 12\n")
	assert.NoFileExists(t, filepath.Join(w.workspace, "h"))
	assert.NoFileExists(t, filepath.Join(w.workspace, "o"))
}

func TestReadsKeepToTheWorkspace(t *testing.T) {
	w := newWorkbench(t)
	require.NoError(t, os.Symlink("/etc/hostname", filepath.Join(w.workspace, "evl")))
	require.NoError(t, os.Symlink("loop", filepath.Join(w.workspace, "loop")))
	w.put(t, "b", "\xff")
	w.put(t, "d/f", "")
	for path, kind := range map[string]tool.Kind{
		"evl": tool.Escape, "loop": tool.NotRegular, "b": tool.NotText, "d": tool.IsDir, "none": tool.NotFound, "../x": tool.Invalid, "d/f/g": tool.NotDir,
	} {
		_, err := w.call(`{"code":"1","reads":[{"path":"` + path + `"}]}`)
		assert.Equal(t, kind, tool.KindOf(err), path)
		assert.ErrorContains(t, err, path)
	}
}
