package integration

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/podman"
	"github.com/wisbox/wisbox/sandbox"
)

// runWith runs a program with input and returns its stdout, whatever its exit code.
func runWith(t *testing.T, s *wisbox.Session, in io.Reader, argv ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	res, err := s.Run(t.Context(), sandbox.Cmd{Argv: argv, Stdin: in, Stdout: &out, Stderr: &errs, Timeout: 2 * time.Minute})
	require.NoError(t, err)
	require.Equal(t, sandbox.StatusExited, res.Status, "%s", errs.String())
	return out.String()
}

func TestTheMainJob(t *testing.T) {
	project := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(project, "calc.py"), []byte("def add(a, b):\n    return a - b\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(project, "test_calc.py"), []byte("import unittest, calc\nclass T(unittest.TestCase):\n    def test_add(self): self.assertEqual(calc.add(2, 3), 5)\n"), 0o644))
	s := open(t, &wisbox.SessionOptions{
		Mounts:       []hostmount.Mount{{HostPath: project, MountPath: "project"}},
		AllowedRoots: []string{project},
	})
	assert.Equal(t, "directory", call(t, s, "ls", nil)["entries"].([]any)[0].(map[string]any)["kind"])
	assert.Len(t, call(t, s, "grep", args{"pattern": "a - b"})["matches"], 1)
	test := args{"commands": []string{"python3", "-m", "unittest"}, "cwd": "project"}
	assert.Equal(t, 1, call(t, s, "shell_execute", test).num("exit_code"))
	call(t, s, "edit_file", args{"file_path": "project/calc.py", "old_string": "a - b", "new_string": "a + b"})
	assert.Equal(t, 0, call(t, s, "shell_execute", test).num("exit_code"))
	value := call(t, s, "evaluate_python", args{"code": "import sys; sys.path.insert(0, 'project')\nimport calc\ncalc.add(20, 22)"})
	assert.Equal(t, "42", value["value_repr"])
	source, err := os.ReadFile(filepath.Join(project, "calc.py"))
	require.NoError(t, err)
	assert.Contains(t, string(source), "a - b", "the host's copy is untouched")
}

func TestAKeptSessionIsUsedByTheNextProcess(t *testing.T) {
	need(t)
	s, err := env.manager.Open(t.Context(), &wisbox.SessionOptions{Name: "kept-it", Kept: true, Env: map[string]string{"A": "b"}})
	require.NoError(t, err)
	call(t, s, "write_file", args{"file_path": "f", "content": "1"})
	before := output(t, s, "hostname; cat f")
	require.NoError(t, s.Close(t.Context()))

	other, err := wisbox.NewManager(t.Context(), &wisbox.Options{CacheDir: env.root})
	require.NoError(t, err)
	defer other.Close()
	again, err := other.Attach(t.Context(), "kept-it")
	require.NoError(t, err)
	assert.Equal(t, before, output(t, again, "hostname; cat f"))
	assert.Equal(t, "b\n", output(t, again, "echo $A"))
	require.NoError(t, again.Close(t.Context()))

	_, err = env.manager.Open(t.Context(), &wisbox.SessionOptions{Name: "kept-it", Kept: true})
	assert.Equal(t, "exists", string(kind(err)))
	require.NoError(t, env.manager.Remove(t.Context(), "kept-it"))
	requireGone(t, s)
	_, err = env.manager.Attach(t.Context(), "kept-it")
	assert.Equal(t, "not_found", string(kind(err)))
}

func TestAMissingImageIsNamedAndNothingIsLeft(t *testing.T) {
	s := open(t, &wisbox.SessionOptions{Image: "localhost/no-such-image:v0"})
	_, err := try(t, s, "shell_execute", args{"script": "true"})
	assert.Equal(t, "unavailable", string(kind(err)))
	assert.ErrorContains(t, err, "localhost/no-such-image:v0")
	assert.ErrorContains(t, err, "wisbox image build")
	call(t, s, "write_file", args{"file_path": "f", "content": "files need no container"})
	list, err := env.backend.List(t.Context())
	require.NoError(t, err)
	for _, info := range list {
		assert.NotEqual(t, s.ID(), info.ID)
	}
}

func TestADeadServiceIsSaidAndFilesStillWork(t *testing.T) {
	need(t)
	m, err := wisbox.NewManager(t.Context(), &wisbox.Options{
		CacheDir: filepath.Join(t.TempDir(), "s"), Podman: podman.Options{BaseURL: "unix:///run/wisbox-no-such.sock"},
	})
	require.NoError(t, err)
	defer m.Close()
	s, err := m.Open(t.Context(), nil)
	require.NoError(t, err)
	call(t, s, "write_file", args{"file_path": "f", "content": "x"})
	began := time.Now()
	_, err = try(t, s, "shell_execute", args{"script": "true"})
	assert.Equal(t, "unavailable", string(kind(err)))
	assert.NotContains(t, err.Error(), "wisbox-no-such.sock", "no host path reaches an agent")
	assert.Less(t, time.Since(began), 30*time.Second)
	assert.Equal(t, "x", call(t, s, "read_file", args{"file_path": "f"}).str("content"))
	require.NoError(t, s.Close(t.Context()))
	_, err = try(t, s, "ls", nil)
	assert.Equal(t, "closed", string(kind(err)))
}

func TestAContainerThatIsRemovedFromOutsideComesBack(t *testing.T) {
	s := open(t, nil)
	output(t, s, "echo kept > f")
	require.NoError(t, env.backend.Remove(t.Context(), s.ID()))
	assert.Equal(t, "kept\n", output(t, s, "cat f"), "the next call works over the same files")
}

func TestAContainerThatIsRemovedDuringACallIsSaid(t *testing.T) {
	s := open(t, nil)
	output(t, s, "true")
	done := make(chan answer, 1)
	go func() {
		a, _ := try(t, s, "shell_execute", args{"script": "touch begun; sleep 60", "timeout": 90})
		done <- a
	}()
	require.Eventually(t, func() bool {
		_, err := os.Lstat(filepath.Join(s.WorkspacePath(), "begun"))
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	require.NoError(t, env.backend.Remove(t.Context(), s.ID()))
	select {
	case a := <-done:
		assert.Equal(t, "sandbox_lost", a.str("status"), "%v", a)
	case <-time.After(30 * time.Second):
		t.Fatal("the call did not end")
	}
	assert.Equal(t, "ok\n", output(t, s, "echo ok"))
}

func TestADeletedWorkspaceIsSaidInOurWords(t *testing.T) {
	s := open(t, nil)
	output(t, s, "true")
	require.NoError(t, os.RemoveAll(s.WorkspacePath()))
	a, err := try(t, s, "shell_execute", args{"script": "pwd"})
	if err == nil {
		assert.Equal(t, "/workspace\n", a.str("stdout"))
		return
	}
	assert.Contains(t, []string{"unavailable", "closed"}, string(kind(err)))
	assert.NotContains(t, err.Error(), "container mount namespace")
}

func TestACancelledCallLeavesNoProcess(t *testing.T) {
	s := open(t, nil)
	output(t, s, "true")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan sandbox.Result, 1)
	go func() {
		res, _ := s.Run(ctx, sandbox.Cmd{Argv: []string{"bash", "-c", "setsid sleep 4711 & touch begun; sleep 4711"}})
		ended <- res
	}()
	require.Eventually(t, func() bool {
		_, err := os.Lstat(filepath.Join(s.WorkspacePath(), "begun"))
		return err == nil
	}, 30*time.Second, 20*time.Millisecond)
	cancel()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the call did not end")
	}
	require.Eventually(t, func() bool {
		return !strings.Contains(output(t, s, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"), "sleep 4711 ")
	}, 30*time.Second, 50*time.Millisecond)
}
