// Package page drives `wisbox ui` with Debian's Chromium, as a person does.
package page

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// world is a state root of its own.
type world struct {
	t     *testing.T
	bin   string
	cache string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bin: hosttest.Binary(t), cache: filepath.Join(t.TempDir(), "state")}
	out, err := w.command("run", "--", "true").CombinedOutput()
	if err != nil && os.Getenv("WISBOX_REQUIRE_PODMAN") == "" {
		t.Skipf("Podman can't run here: %s", out)
	}
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		found, _ := filepath.Glob(filepath.Join(w.cache, "sessions", "*"))
		for _, path := range found {
			out, err := w.command("session", "rm", filepath.Base(path)).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		}
	})
	return w
}

func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(w.bin, args...)
	cmd.Env = append(os.Environ(), "WISBOX_CACHE="+w.cache, "WISBOX_NO_CONFIG=1")
	return cmd
}

// ui starts the page, and returns its one-time URL.
func (w *world) ui(flags ...string) string {
	w.t.Helper()
	cmd := w.command(append([]string{"ui", "--no-browser"}, flags...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	pipe, err := cmd.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, cmd.Start())
	lines := bufio.NewReader(pipe)
	url, err := lines.ReadString('\n')
	w.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait()
		assert.Equal(w.t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode(), "%s", &said)
	})
	require.NoError(w.t, err, "%s", &said)
	return strings.TrimSpace(url)
}

// browse runs a script of testdata, which fails where the page isn't as it should be.
func (w *world) browse(script string, args ...string) {
	t := w.t
	t.Helper()
	dir := filepath.Dir(hosttest.NodePackages(t, "testdata/package.json"))
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("WISBOX_REQUIRE_NPM") != "" {
			t.Fatal("Chromium is required (WISBOX_REQUIRE_NPM): scripts/setup.sh chromium:chromium")
		}
		t.Skip("there is no Chromium: scripts/setup.sh chromium:chromium")
	}
	text, err := os.ReadFile(filepath.Join("testdata", script))
	require.NoError(t, err)
	beside := filepath.Join(dir, filepath.Base(t.TempDir())+"-"+script) // where node finds the packages
	require.NoError(t, os.WriteFile(beside, text, 0o600))
	defer os.Remove(beside)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/node/bin/node"), append([]string{beside}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "WISBOX="+w.bin, "WISBOX_CACHE="+w.cache)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", script, out)
	t.Logf("%s", out)
	assert.Contains(t, string(out), "done")
}

// TestAPersonAtThePage signs in, makes a session, works in its terminal, sees what that
// changed, and takes it back. With WISBOX_NIGHTLY it meets hostile files, the network and
// the rest too; WISBOX_PICTURES=1 makes the pictures of docs/page.md of that.
func TestAPersonAtThePage(t *testing.T) {
	w := newWorld(t)
	pictures := ""
	if os.Getenv("WISBOX_PICTURES") != "" {
		pictures = filepath.Join(hosttest.Module(t), "docs", "pictures")
	}
	w.browse("person.mjs", w.ui(), pictures)
}

// TestTheAssetsAreWhatTheirSourcesGive is for the files that are checked in.
func TestTheAssetsAreWhatTheirSourcesGive(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil && os.Getenv("WISBOX_REQUIRE_NPM") == "" {
		t.Skip("there is no npm: scripts/setup.sh npm:npm")
	}
	out, err := exec.Command(filepath.Join(hosttest.Module(t), "scripts", "page.sh"), "--check").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
