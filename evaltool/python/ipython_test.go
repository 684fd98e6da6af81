package python_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/internal/hosttest"
)

// withIPython provides a fake IPython to the interpreter; the tests of package integration have an image with the real
// one.
func withIPython(t *testing.T, source string) *bench {
	t.Helper()
	b := newBench(t)
	dir := filepath.Join(b.workspace, "IPython")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "__init__.py"), []byte(source), 0o600))
	return b
}

func TestAnIPythonThatCantBeUsedIsDoneWithout(t *testing.T) {
	for name, c := range map[string]struct{ source, says string }{
		"broken":       {"import no_such_module", "IPython is installed but can't be used, so the code runs without it: ModuleNotFoundError: No module named 'no_such_module'"},
		"old":          {"version_info, __version__ = (7, 34), '7.34'", "ImportError: IPython 7.34 is older than 8"},
		"none at all":  {"", "AttributeError"},
		"one that has": {"raise SystemExit(3)", "SystemExit: 3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := withIPython(t, c.source)
			resp := b.eval(t, evaltool.Request{Code: "x = g + 1\nx", Kept: true, Globals: map[string]string{"g": "1"}})
			assert.Equal(t, "2", value(resp))
			assert.Contains(t, resp.Stderr, c.says)
			assert.Equal(t, map[string]string{"g": "1", "x": "2"}, resp.Globals)
			resp = b.keptCode(t, "  y = %pwd\n  (_ + x, type(display).__name__)")
			assert.Equal(t, "(4, 'function')", value(resp), "the language is wisbox's own: %s", resp.Stderr)
			assert.Empty(t, resp.Stderr, "which is reported once")
			assert.Equal(t, int64(3), b.keptCode(t, "x x").Count)
		})
	}
}

func TestEvaluationsThatKeepNothingDontImportIPython(t *testing.T) {
	b := withIPython(t, "open('imported', 'w').close()")
	assert.Equal(t, "2", value(b.code(t, "1 + 1")))
	assert.NoFileExists(t, filepath.Join(b.workspace, "imported"))
	b.keptCode(t, "1")
	assert.FileExists(t, filepath.Join(b.workspace, "imported"))
}

// The import is a part of the first evaluation: an interrupt ends it, and the next evaluation tries it again.
func TestAnInterruptEndsTheImportOfIPython(t *testing.T) {
	b := withIPython(t, "import os, time\nif not os.path.exists('begun'):\n open('begun', 'w').close()\n time.sleep(60)\n")
	begun := filepath.Join(b.workspace, "begun")
	resp, err := b.Evaluate(hosttest.OnceThere(t, begun), evaltool.Request{Code: "x = 1", Kept: true, Timeout: time.Minute, Sandbox: evaltool.SandboxContainer})
	require.NoError(t, err)
	assert.Equal(t, evaltool.StatusCancelled, resp.Status)
	assert.Contains(t, strings.Join(resp.Notes, " "), "still there")
	after := b.keptCode(t, "'x' in globals()")
	assert.Equal(t, "False", value(after), "the code didn't run")
	assert.Contains(t, after.Stderr, "can't be used", "it was imported again")
	assert.Equal(t, int64(2), after.Count)
}
