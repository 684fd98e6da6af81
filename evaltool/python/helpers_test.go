package python_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/evaltool"
	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestHelpersSeeQueuedWritesAndTheFiles(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Mkdir(filepath.Join(b.workspace, "d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "d", "f"), []byte("hi\r\n"), 0o600))
	for _, c := range []struct{ name, code, value string }{
		{"text is exact", "read_text('d/f')", `'hi\r\n'`},
		{"leading slash", "read_text('/workspace/d//f')", `'hi\r\n'`},
		{"queued", "write_text('new', 'x')\nread_text('new')", "'x'"},
		{"queued over", "write_text('d/f', 'x')\nread_text('/d/f')", "'x'"},
		{"queued append", "write_text('d/f', 'x', 'append')\nread_text('d/f')", `'hi\r\nx'`},
		{"queued append to a new one", "write_text('n', 'x', mode='append')\nread_text('n')", "'x'"},
		{"two appends", "write_text('n', 'x', 'append')\nwrite_text('n', 'y', 'append')\nread_text('n')", "'xy'"},
		{"not written yet", "write_text('new', 'x')\nimport os; os.path.exists('new')", "False"},
		{"listed", "write_text('d/q', '')\nlist_files()", "['d/f', 'd/q']"},
		{"listed in a new directory", "write_text('n/q', '')\nlist_files('n')", "['n/q']"},
		{"listed below", "write_text('x', '')\nlist_files('d')", "['d/f']"},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.value, value(b.keptCode(t, c.code))) })
	}
}

func TestQueuedWritesAreMerged(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "old"), []byte("o"), 0o600))
	resp := b.keptCode(t, `
write_text("a", "1", "create"); write_text("a", "2")
write_text("b", "1"); write_text("b", "2", "append")
write_text("old", "1", "append"); write_text("old", "2", "append")
`)
	assert.Equal(t, []evaltool.Queued{
		{Path: "/workspace/a", Mode: "create", Content: "2"}, {Path: "/workspace/b", Mode: "overwrite", Content: "12"}, {Path: "/workspace/old", Mode: "append", Content: "12"},
	}, resp.Writes)
	assert.Empty(t, b.keptCode(t, "1").Writes, "a queue is one call's")
	failed := b.keptCode(t, "write_text('a', '1')\n1/0")
	assert.Equal(t, evaltool.StatusException, failed.Status)
	assert.Equal(t, []evaltool.Queued{{Path: "/workspace/a", Mode: "overwrite", Content: "1"}}, failed.Writes, "told, for the caller to say what is dropped")
	assert.Empty(t, b.keptCode(t, "1").Writes, "and gone")
}

func TestHelpersRefuseWhatTheFileToolsRefuse(t *testing.T) {
	b := newBench(t)
	require.NoError(t, os.Symlink("/etc", filepath.Join(b.workspace, "etc")))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "bin"), []byte{0xff}, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.workspace, "old"), nil, 0o600))
	b.keptCode(t, "import os; os.mkfifo('fifo')")
	for _, c := range []struct{ code, says string }{
		{"read_text('../x')", "ValueError"},
		{"read_text('a/./b')", "ValueError"},
		{"read_text('é')", "ValueError"},
		{"read_text('a\\nb')", "ValueError"},
		{"read_text('/')", "ValueError"},
		{"read_text('" + fmt.Sprintf("%081d", 0) + "')", "80 characters"},
		{"read_text('a/' * 17)", "16 segments"},
		{"read_text(1)", "TypeError"},
		{"read_text('etc/passwd')", "PermissionError"},
		{"read_text('fifo')", "not a regular file"},
		{"read_text('bin')", "UnicodeDecodeError"},
		{"read_text('none')", "FileNotFoundError"},
		{"import os; os.mkdir('dir')\nread_text('dir')", "Is a directory: 'dir'"},
		{"write_text('x')", "write_text() missing 1 required"},
		{"write_text('old', 'x', 'create')", "FileExistsError"},
		{"write_text('x', 'x', 'w')", "create, overwrite or append"},
		{"write_text('x', b'x')", "TypeError"},
		{"write_text('x', 'x' * 48_001)", "48000 characters"},
		{"for i in range(65): write_text(f'f{i}', '')", "64 files"},
		{"write_text('x', '\\ud800')", "UnicodeEncodeError"},
		{"list_files('old')", "NotADirectoryError"},
	} {
		resp := b.keptCode(t, c.code)
		assert.Equal(t, evaltool.StatusException, resp.Status, c.code)
		assert.Contains(t, resp.Stderr, c.says, c.code)
	}
}

// jsonValues generates JSON values that are small enough to be returned completely.
func jsonValues() *rapid.Generator[any] {
	scalar := rapid.OneOf(
		rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(),
		rapid.Float64Range(-1e300, 1e300).AsAny(),
	)
	var nested func(depth int) *rapid.Generator[any]
	nested = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return scalar
		}
		inner := nested(depth - 1)
		return rapid.OneOf(scalar, rapid.SliceOfN(inner, 0, 4).AsAny(), rapid.MapOfN(rapid.String(), inner, 0, 4).AsAny())
	}
	return nested(3)
}

func TestAnyJSONValueComesOutEqual(t *testing.T) {
	b := newBench(t)
	rapid.Check(t, func(rt *rapid.T) {
		// Escapes and blanks could make a longer value exceed the limit of a global.
		short := jsonValues().Filter(func(v any) bool { text, err := json.Marshal(v); return err == nil && len(text) <= 1000 })
		text, err := json.Marshal(short.Draw(rt, "value"))
		require.NoError(rt, err)
		resp := b.eval(t, evaltool.Request{Code: "w = v", Globals: map[string]string{"v": string(text)}, Kept: true, Timeout: 20 * time.Second})
		require.Equal(rt, evaltool.StatusExited, resp.Status, resp.Stderr)
		assert.JSONEq(rt, string(text), resp.Globals["v"])
		assert.JSONEq(rt, string(text), resp.Globals["w"])
	})
}

func TestAnyCodeHasOneValidResult(t *testing.T) {
	b := newBench(t)
	words := rapid.SampledFrom([]string{
		"x", "=", "1", "(", ")", "\n", " ", "'", "\"", "def f(): ", "return", "await", "print", "[", "]", "{", "}", ":", ",", "lambda", "\\", "#",
		"for i in ", "raise ", "import sys", ";", "__builtins__", "globals()", "del ", "é", "\U0001F600", "0x", "1e999", "**", "f'{", "}'",
		"sys.stdout", ".", "None", "class A: ", "yield", "try: ", "except: ", "@", "read_text", "async ", "\t",
	})
	rapid.Check(t, func(rt *rapid.T) {
		code := ""
		for _, word := range rapid.SliceOfN(words, 0, 30).Draw(rt, "words") {
			code += word
		}
		resp := b.eval(t, evaltool.Request{Code: code, Kept: true, Timeout: 20 * time.Second})
		require.Contains(rt, []string{evaltool.StatusExited, evaltool.StatusException}, resp.Status)
		require.False(rt, resp.Ended, code)
	})
}
