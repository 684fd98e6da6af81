//go:build integration

package podman

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/podman/podmantest"
	"github.com/wisbox/wisbox/sandbox"
)

func tarOf(t testing.TB, files map[string]string) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &out
}

// buildImage makes an image from the test's and further lines, which may copy the
// file f and use WHO. It goes with the test.
func (h *host) buildImage(lines string, progress func(string)) (tag string) {
	h.t.Helper()
	if progress == nil {
		progress = func(s string) { h.t.Log(s) }
	}
	tag = "localhost/wisbox-test-" + strings.ToLower(rand.Text()[:8]) + ":1"
	h.t.Cleanup(func() {
		_ = h.do(context.Background(), request{method: "DELETE", path: imagePath(tag, ""), query: url.Values{"force": {"true"}}})
	})
	files := map[string]string{"Containerfile": "FROM " + testImage() + "\n" + lines, "f": "content"}
	require.NoError(h.t, h.BuildImage(h.t.Context(), tarOf(h.t, files), sandbox.ImageBuild{Tag: tag, Args: map[string]string{"WHO": "you"}, Progress: progress}))
	return tag
}

// image builds an image from nothing. It goes with the test.
func (h *host) image(i podmantest.Image) (tag string) {
	h.t.Helper()
	tag = "localhost/wisbox-test-" + strings.ToLower(rand.Text()[:8]) + ":1"
	h.t.Cleanup(func() {
		_ = h.do(context.Background(), request{method: "DELETE", path: imagePath(tag, ""), query: url.Values{"force": {"true"}}})
	})
	require.NoError(h.t, h.BuildImage(h.t.Context(), i.Context(h.t), sandbox.ImageBuild{Tag: tag}))
	return tag
}

// SaveImage writes an image as `podman save` does, for LoadImage.
func (b *Backend) SaveImage(ctx context.Context, ref string, w io.Writer) error {
	return b.transfer(ctx, request{
		method: http.MethodGet, path: imagePath(ref, "/get"), query: url.Values{"format": {"docker-archive"}},
		sink: w, doing: "save the image",
	})
}

func TestAnImageIsBuiltSavedAndLoaded(t *testing.T) {
	h := newHost(t, nil)
	var lines []string
	tag := h.buildImage("ARG WHO\nCOPY f /f\nRUN echo \"hello $WHO\" && cp /f /g\nLABEL made=yes\n", func(s string) { lines = append(lines, s) })
	require.Contains(t, strings.Join(lines, "\n"), "hello you")
	info, err := h.ImageInfo(t.Context(), tag)
	require.NoError(t, err)
	require.Equal(t, "yes", info.Labels["made"])
	start := time.Now()
	require.NoError(t, h.PrepareImage(t.Context(), tag))
	t.Log("prepare", time.Since(start))

	archive, err := os.Create(filepath.Join(t.TempDir(), "a.tar"))
	require.NoError(t, err)
	defer archive.Close()
	require.NoError(t, h.SaveImage(t.Context(), tag, archive))
	_, err = archive.Seek(0, 0)
	require.NoError(t, err)
	names, err := h.LoadImage(t.Context(), archive)
	require.NoError(t, err)
	require.Contains(t, names, tag)
}

func TestABuildThatFailsSaysSo(t *testing.T) {
	h := newHost(t, nil)
	var lines []string
	err := h.BuildImage(t.Context(), tarOf(t, map[string]string{
		"Containerfile": "FROM " + testImage() + "\nRUN echo before && exit 3\n",
	}), sandbox.ImageBuild{Tag: "localhost/wisbox-test-fails:1", Progress: func(s string) { lines = append(lines, s) }})
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	t.Log(err, lines)
	_, err = h.ImageInfo(t.Context(), "localhost/wisbox-test-fails:1")
	require.ErrorIs(t, err, sandbox.ErrNotFound)
}

func TestAPullWithoutARegistryEndsInTime(t *testing.T) {
	h := newHost(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	start := time.Now()
	err := h.PullImage(ctx, "registry.invalid/nothing:1", nil)
	require.Error(t, err)
	require.Less(t, time.Since(start), 30*time.Second)
	t.Log(err)
}

func TestAnImageIsListedAndRemovedOnceNoContainerHasIt(t *testing.T) {
	h := newHost(t, nil)
	label := "wisbox-test-" + strings.ToLower(rand.Text()[:8])
	tag := h.buildImage("LABEL "+label+"=yes\n", nil)
	all, err := h.Images(t.Context())
	require.NoError(t, err)
	found := slices.DeleteFunc(all, func(i ImageInfo) bool { return i.Labels[label] == "" })
	require.Len(t, found, 1)
	info, err := h.ImageInfo(t.Context(), tag)
	require.NoError(t, err)
	require.Equal(t, info.ID, found[0].ID)
	require.Equal(t, []string{tag}, found[0].Tags)
	require.Equal(t, "yes", found[0].Labels[label])
	require.WithinDuration(t, info.Created, found[0].Created, time.Minute)
	require.Positive(t, found[0].Size)

	spec := h.spec("image-in-use")
	spec.Image = tag
	s := h.create(spec)
	require.ErrorIs(t, h.RemoveImage(t.Context(), info.ID), sandbox.ErrExists)
	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, h.RemoveImage(t.Context(), info.ID))
	_, err = h.ImageInfo(t.Context(), tag)
	require.ErrorIs(t, err, sandbox.ErrNotFound)
	require.NoError(t, h.RemoveImage(t.Context(), info.ID), "one that is gone is not an error")
	_, err = h.ImageInfo(t.Context(), testImage())
	require.NoError(t, err, "what it stood on stays")
}
