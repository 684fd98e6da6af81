//go:build integration

package podman

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// testImage returns the image that the environment names, or the one that `wisbox image build` made.
func testImage() string {
	if ref := os.Getenv("WISBOX_TEST_IMAGE"); ref != "" {
		return ref
	}
	return "localhost/wisbox:dev"
}

// host is a backend with its own state root and a place for workspaces.
type host struct {
	*Backend
	t testing.TB
}

// newHost skips where Podman can't run, and fails with WISBOX_REQUIRE_PODMAN=1.
func newHost(t testing.TB, opts *Options) *host {
	t.Helper()
	if opts == nil {
		opts = &Options{}
	}
	if opts.Root == "" {
		opts.Root = "t" + strings.ToLower(rand.Text()[:8])
	}
	opts.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b, err := New(t.Context(), opts)
	require.NoError(t, err)
	if err := haveImage(t.Context(), b); err != nil {
		if os.Getenv("WISBOX_REQUIRE_PODMAN") == "1" {
			t.Fatal(err)
		}
		t.Skip("no podman, or no image: ", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		left, err := b.List(ctx)
		require.NoError(t, err)
		for _, info := range left {
			require.NoError(t, b.Remove(ctx, info.ID))
		}
		require.NoError(t, b.Close())
	})
	return &host{b, t}
}

// haveImage loads the image from WISBOX_TEST_ARCHIVE where the store lacks it.
func haveImage(ctx context.Context, b *Backend) error {
	_, err := b.ImageInfo(ctx, testImage())
	archive := os.Getenv("WISBOX_TEST_ARCHIVE")
	if !errors.Is(err, sandbox.ErrNotFound) || archive == "" {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = b.LoadImage(ctx, f)
	return errors.Join(err, b.PrepareImage(ctx, testImage()))
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// spec returns a spec whose workspace belongs to its programs.
func (h *host) spec(id string) sandbox.Spec {
	h.t.Helper()
	owner, err := h.Owner(h.t.Context())
	require.NoError(h.t, err)
	dir := filepath.Join(h.t.TempDir(), "workspace")
	require.NoError(h.t, os.Mkdir(dir, 0o755))
	require.NoError(h.t, os.Chown(dir, owner.UID, owner.GID))
	return sandbox.Spec{ID: id, Image: testImage(), Workspace: dir}
}

func (h *host) create(spec sandbox.Spec) *Sandbox {
	h.t.Helper()
	s, err := h.Create(h.t.Context(), spec)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { s.Close(context.Background()) })
	return s.(*Sandbox)
}

// sh runs a script and returns its output and result.
func sh(t *testing.T, s sandbox.Runner, script string) (string, sandbox.Result) {
	t.Helper()
	var out bytes.Buffer
	result, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"bash", "-c", script}, Stdout: &out, Stderr: &out, Timeout: 2 * time.Minute})
	require.NoError(t, err)
	return out.String(), result
}

func TestAProgramRunsInANewContainer(t *testing.T) {
	h := newHost(t, nil)
	spec := h.spec("a")
	spec.Env = map[string]string{"GREETING": "hello"}
	s := h.create(spec)
	out, result := sh(t, s, `echo "$GREETING $(id -u):$(id -g) $(hostname) $PWD"; echo made >f; env; cat /proc/self/mountinfo`)
	t.Log(out)
	require.Equal(t, 0, result.ExitCode)
	require.Contains(t, out, "hello 1000:1000 wisbox /workspace\n")
	data, err := os.ReadFile(filepath.Join(spec.Workspace, "f"))
	require.NoError(t, err)
	require.Equal(t, "made\n", string(data))
	info, err := s.Info(t.Context())
	require.NoError(t, err)
	t.Logf("%+v", info)
}
