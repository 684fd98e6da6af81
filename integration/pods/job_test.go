package pods

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
)

// TestTheMainJob is the job of integration/lifecycle_test.go: an agent finds a bug in a project, fixes it
// and sees the tests pass. The host's copy must change only on request.
func TestTheMainJob(t *testing.T) {
	n := newNamespace(t)
	n.write("project/calc.py", "def add(a, b):\n    return a - b\n")
	n.write("project/test_calc.py", "import unittest, calc\nclass T(unittest.TestCase):\n    def test_add(self): self.assertEqual(calc.add(2, 3), 5)\n")
	project := filepath.Join(n.dir, "project")
	m := n.manager(n.config)
	s, err := m.Open(t.Context(), &wisbox.SessionOptions{
		Mounts:       []hostmount.Mount{{HostPath: project, MountPath: "project"}},
		AllowedRoots: []string{project},
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, s.Close(t.Context())) }()
	call := func(name, args string) string {
		t.Helper()
		res, err := s.Call(t.Context(), name, json.RawMessage(args))
		require.NoError(t, err)
		raw, err := json.Marshal(res.Value)
		require.NoError(t, err)
		return string(raw)
	}
	assert.Contains(t, call("ls", "{}"), `"kind":"directory"`)
	assert.Contains(t, call("grep", `{"pattern":"a - b"}`), `"line_number":2`)
	const test = `{"commands":["python3","-m","unittest"],"cwd":"project"}`
	assert.Contains(t, call("shell_execute", test), `"exit_code":1`)
	call("edit_file", `{"file_path":"project/calc.py","old_string":"a - b","new_string":"a + b"}`)
	assert.Contains(t, call("shell_execute", test), `"exit_code":0`)
	assert.Contains(t, call("evaluate_python", `{"code":"import sys; sys.path.insert(0, 'project')\nimport calc\ncalc.add(20, 22)"}`), `"value_repr":"42"`)
	source := func() string {
		raw, err := os.ReadFile(filepath.Join(project, "calc.py"))
		require.NoError(t, err)
		return string(raw)
	}
	assert.Contains(t, source(), "a - b", "the host's copy is untouched")
}
