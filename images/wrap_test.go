package images

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// elfProgram returns the headers of a Linux program with one segment.
func elfProgram(t *testing.T, segment uint32) string {
	t.Helper()
	head := make([]byte, 64+56)
	copy(head, "\x7fELF\x02\x01\x01")
	le := binary.LittleEndian
	le.PutUint16(head[16:], 2)    // an executable
	le.PutUint16(head[18:], 0x3e) // x86-64
	le.PutUint32(head[20:], 1)
	le.PutUint64(head[32:], 64) // offset of the program headers
	le.PutUint16(head[52:], 64)
	le.PutUint16(head[54:], 56)
	le.PutUint16(head[56:], 1)
	le.PutUint16(head[58:], 64)
	le.PutUint32(head[64:], segment)
	path := filepath.Join(t.TempDir(), "wisbox")
	require.NoError(t, os.WriteFile(path, head, 0o755)) //nolint:gosec // a program
	return path
}

func TestAnImageIsWrapped(t *testing.T) {
	s := newStore()
	s.images["localhost/mine:1"] = sandbox.ImageInfo{ID: "base", Platform: "linux/" + runtime.GOARCH}
	program := elfProgram(t, 1)
	report, err := Wrap(t.Context(), s, &WrapOptions{Image: "localhost/mine:1", Program: program})
	require.NoError(t, err)
	assert.Equal(t, "localhost/wisbox-pod-mine:1", report.Image)
	assert.Equal(t, []string{"base"}, s.builtOn)
	assert.True(t, s.build.NoNetwork)
	assert.NotContains(t, s.context["Containerfile"], "RUN", "an image may have no shell")
	want, err := os.ReadFile(program)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(want, []byte(s.context["wisbox"])))
	kind, _ := identify(s.images[report.Image])
	assert.Equal(t, KindBuilt, kind, "prune --all may take it")
}

func TestMoreFilesOfAWrappedImage(t *testing.T) {
	s := newStore()
	s.images["localhost/mine:1"] = sandbox.ImageInfo{ID: "base", Platform: "linux/" + runtime.GOARCH}
	file := filepath.Join(t.TempDir(), "here")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	opts := &WrapOptions{Image: "localhost/mine:1", Program: elfProgram(t, 1), Shared: map[string]string{"a.wasm": file}, ShareDir: "/usr/share/of"}
	_, err := Wrap(t.Context(), s, opts)
	require.NoError(t, err)
	assert.Equal(t, "text", s.context["a.wasm"])
	assert.Contains(t, s.context["Containerfile"], "COPY --chown=0:0 --chmod=0644 a.wasm /usr/share/of/\nCOPY --chown=0:0 --chmod=0755 wisbox /usr/local/bin/\n")

	opts.Shared["a.wasm"] = t.TempDir()
	_, err = Wrap(t.Context(), s, opts)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	assert.ErrorContains(t, err, "a.wasm")
}

// TestWhatIsAttachedToTheProgram: the program stays one that Linux runs.
func TestWhatIsAttachedToTheProgram(t *testing.T) {
	s := newStore()
	s.images["localhost/mine:1"] = sandbox.ImageInfo{ID: "base", Platform: "linux/" + runtime.GOARCH}
	file := filepath.Join(t.TempDir(), "here")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	opts := &WrapOptions{Image: "localhost/mine:1", Program: elfProgram(t, 1), Attached: map[string]string{"b/c.bin": file, "a": file}}
	wrap := func() string {
		_, err := Wrap(t.Context(), s, opts)
		require.NoError(t, err)
		return s.context["wisbox"]
	}
	got := wrap()
	plain, err := os.ReadFile(opts.Program)
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(got, string(plain)))
	require.NoError(t, static(strings.NewReader(got)))
	attached, err := zip.NewReader(strings.NewReader(got), int64(len(got)))
	require.NoError(t, err)
	require.NoError(t, fstest.TestFS(attached, "a", "b/c.bin"))
	text, err := fs.ReadFile(attached, "b/c.bin")
	require.NoError(t, err)
	assert.Equal(t, "text", string(text))
	assert.Equal(t, got, wrap(), "the same files make the same layer")

	opts.Attached["a"] = filepath.Join(t.TempDir(), "none")
	_, err = Wrap(t.Context(), s, opts)
	assert.Equal(t, tool.Unavailable, tool.KindOf(err))
}

func TestTheNameOfAWrappedImage(t *testing.T) {
	for image, want := range map[string]string{
		Default:                                   Pods,
		"localhost/wisbox":                        Pods,
		"docker.io/library/node:22":               "localhost/wisbox-pod-node:22",
		"node":                                    "localhost/wisbox-pod-node:latest",
		"ghcr.io/owner/name":                      "localhost/wisbox-pod-owner-name:latest",
		"localhost:5000/mine:1":                   "localhost/wisbox-pod-mine:1",
		"localhost/wisbox-with:node-1234":         "localhost/wisbox-pod-wisbox-with:node-1234",
		strings.Repeat("ab", 32):                  podRepository + ":abababababab",
		"a.b/c@sha256:" + strings.Repeat("0", 64): "localhost/wisbox-pod-c:000000000000",
	} {
		got, err := (&WrapOptions{Image: image}).tag()
		require.NoError(t, err)
		assert.Equal(t, want, got, image)
	}
	got, err := (&WrapOptions{Image: "node", Tag: "registry.example.com/node:pod"}).tag()
	require.NoError(t, err)
	assert.Equal(t, "registry.example.com/node:pod", got)
	_, err = (&WrapOptions{Image: "node", Tag: "localhost/wisbox:1"}).tag()
	assert.Equal(t, tool.Exists, tool.KindOf(err))
}

func TestWhatCanNotBeWrapped(t *testing.T) {
	program := elfProgram(t, 1)
	other := "linux/arm64"
	if runtime.GOARCH == "arm64" {
		other = "linux/amd64"
	}
	for says, o := range map[string]WrapOptions{
		"is wrapped already":              {Image: "localhost/wisbox-pod-node:22", Program: program},
		"is for " + other:                 {Image: "localhost/other", Program: program},
		"isn't on this machine; see":      {Image: "nosuch", Program: program},
		"isn't on this machine; pull it":  {Image: "docker.io/library/nosuch", Pull: pullNever, Program: program},
		"has no registry":                 {Image: "localhost/other", Pull: pullAlways, Program: program},
		"build it once":                   {Program: program},
		"linked to libraries":             {Image: "localhost/mine", Program: elfProgram(t, 3)},
		"isn't a Linux program":           {Image: "localhost/mine", Program: "wrap.go"},
		"can't read its own program file": {Image: "localhost/mine", Program: filepath.Join(t.TempDir(), "none")},
	} {
		s := newStore()
		s.images["localhost/other"] = sandbox.ImageInfo{ID: "other", Platform: other}
		s.images["localhost/mine"] = sandbox.ImageInfo{ID: "mine"}
		_, err := Wrap(t.Context(), s, &o)
		require.ErrorContains(t, err, says)
		assert.Empty(t, s.builtOn, "%s", says)
	}
	s := newStore()
	s.pullErr = errors.New("no such registry")
	_, err := Wrap(t.Context(), s, &WrapOptions{Image: "docker.io/library/node:22", Program: program})
	require.ErrorIs(t, err, s.pullErr)
	s.pullErr = nil
	_, err = Wrap(t.Context(), s, &WrapOptions{Image: "docker.io/library/node:22", Program: program})
	require.NoError(t, err)
	assert.Equal(t, []string{"pulled"}, s.builtOn)
}
