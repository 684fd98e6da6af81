package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAPodmanThatHangsIsNamed: what needs no Podman works, and everything else says for what it waits.
func TestAPodmanThatHangsIsNamed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("rootless Podman keeps its runtime directory in its store; root's run of this test does it")
	}
	h := newHome(t)
	private, err := os.MkdirTemp("", "wb")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(private)) })
	run := func(args ...string) (string, error) {
		cmd := h.command(args...)
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+private) // so Podman's service is of this test alone
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	works := func(args ...string) string {
		t.Helper()
		out, err := run(args...)
		require.NoError(t, err, "%s", out)
		return out
	}
	works("create", "box")
	works("exec", "box", "--", "true")
	service := serviceWith(t, "XDG_RUNTIME_DIR="+private)
	require.NoError(t, syscall.Kill(service, syscall.SIGSTOP))
	goOn := func() { _ = syscall.Kill(service, syscall.SIGCONT) }
	t.Cleanup(goOn)
	assert.Equal(t, "hello\n", works("exec", "box", "--", "echo", "hello"))
	works("call", "box", "write_file", `{"file_path":"f","content":"x"}`)
	works("ls")
	works("diff", "box")
	out, err := run("run", "--", "true")
	require.Error(t, err)
	assert.Contains(t, out, "wisbox: waiting for Podman")
	assert.Contains(t, out, "podman's service does not answer; a podman command that hangs may hold a lock")
	goOn()
	works("rm", "-f", "box")
	require.NoError(t, syscall.Kill(service, syscall.SIGTERM))
}

// serviceWith returns the process of the Podman service with that variable in its environment.
func serviceWith(t *testing.T, variable string) int {
	t.Helper()
	for _, dir := range processDirs() {
		line, _ := os.ReadFile(dir + "/cmdline")
		environ, _ := os.ReadFile(dir + "/environ")
		if strings.Contains(string(line), "system\x00service\x00") && slices.Contains(strings.Split(string(environ), "\x00"), variable) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			require.NoError(t, err)
			return pid
		}
	}
	require.Fail(t, "no service")
	return 0
}
