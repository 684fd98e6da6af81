// Package page drives `wisbox ui` with Debian's Chromium, as a person does.
package page

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
)

// world is a separate state root.
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

// browse runs a script of testdata, which fails if the page is wrong.
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
	beside, err := os.MkdirTemp(dir, "page-") // node finds the packages from there
	require.NoError(t, err)
	defer os.RemoveAll(beside)
	require.NoError(t, os.CopyFS(beside, os.DirFS("testdata")))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "node_modules/node/bin/node"), append([]string{filepath.Join(beside, script)}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "WISBOX="+w.bin, "WISBOX_CACHE="+w.cache)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s: %s", script, out)
	t.Logf("%s", out)
	assert.Contains(t, string(out), "done")
}

// TestAPersonAtThePage signs in, creates a session, works in its terminal, reviews the changes and undoes them. With
// WISBOX_NIGHTLY it also works without a mouse, and reports the page's speed. WISBOX_PICTURES=1 creates the pictures of
// docs/page.md instead.
func TestAPersonAtThePage(t *testing.T) {
	w := newWorld(t)
	if os.Getenv("WISBOX_PICTURES") != "" {
		w.browse("pictures.mjs", w.ui(), filepath.Join(hosttest.Module(t), "docs", "pictures"))
		return
	}
	w.browse("person.mjs", w.ui())
}

// TestHostileProgramsAtThePage: names and outputs that try to be markup, in files, evaluations and the timeline; and
// pages of other origins. WISBOX_NIGHTLY runs all of the more than 60 attacks.
func TestHostileProgramsAtThePage(t *testing.T) {
	w := newWorld(t)
	w.browse("hostile.mjs", w.ui())
}

// TestALargeLogAtThePage: of 100,000 calls, the browser has only the visible ones.
func TestALargeLogAtThePage(t *testing.T) {
	w := newWorld(t)
	out, err := w.command("session", "create", "large").CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := filepath.Join(w.cache, "sessions", "large", "log.jsonl")
	const record = `{"seq":SEQ,"prev":"","time":"2026-01-01T00:00:00Z","session":"large","call":"01SEQ","caller":"agent","tool":"run",` +
		`"args":{"command":["echo","<b>SEQ</b>"]},"outcome":"ok","verdict":"exited","duration_ns":1000,"changes":[{"path":"a"}]}`
	var all strings.Builder
	for i := range 100_000 {
		all.WriteString(strings.ReplaceAll(record, "SEQ", strconv.Itoa(i+1)))
		all.WriteByte('\n')
	}
	require.NoError(t, os.WriteFile(file, []byte(all.String()), 0o600))
	w.browse("large.mjs", w.ui(), "", file, record)
}

// TestThePageBesideAServer shows the sandbox of a key to the server's operator.
func TestThePageBesideAServer(t *testing.T) {
	w := newWorld(t)
	const key = "e2b_0123456789abcdef0123456789abcdef01234567"
	cmd := w.command("serve", "--listen", "127.0.0.1:0", "--ui-listen", "localhost:0")
	cmd.Env = append(cmd.Env, "WISBOX_SERVE_KEYS="+key)
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	out, lines := bufio.NewReader(said), bufio.NewReader(log)
	after := func(lines *bufio.Reader, words string) string {
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err, words)
			if _, text, ok := strings.Cut(line, words); ok {
				return strings.TrimSpace(text)
			}
		}
	}
	var reading sync.WaitGroup
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		reading.Wait()
		_ = cmd.Wait()
		assert.Equal(t, 128+int(syscall.SIGTERM), cmd.ProcessState.ExitCode())
	})
	url, api := after(out, "opens for one browser at "), after(lines, "serving on ")
	for _, rest := range []io.Reader{out, lines} {
		reading.Go(func() { _, _ = io.Copy(io.Discard, rest) })
	}

	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, api+"/sandboxes", strings.NewReader(`{"templateID":"base"}`))
	require.NoError(t, err)
	r.Header.Set("X-API-Key", key)
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusCreated, res.StatusCode)
	found, err := filepath.Glob(filepath.Join(w.cache, "sessions", "*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	w.browse("serve.mjs", url, "", filepath.Base(found[0]))
}

// TestTheAssetsAreWhatTheirSourcesGive checks the committed files.
func TestTheAssetsAreWhatTheirSourcesGive(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil && os.Getenv("WISBOX_REQUIRE_NPM") == "" {
		t.Skip("there is no npm: scripts/setup.sh npm:npm")
	}
	out, err := exec.Command(filepath.Join(hosttest.Module(t), "scripts", "page.sh"), "--check").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
