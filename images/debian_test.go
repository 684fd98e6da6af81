package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBasesLayerHasNoDevicesAndNoSetIDBits(t *testing.T) {
	var in, out bytes.Buffer
	tw := tar.NewWriter(&in)
	for _, hdr := range []*tar.Header{
		{Name: "./usr/bin/su", Mode: 0o4755, Size: 1, Typeflag: tar.TypeReg},
		{Name: "./var/mail/", Mode: 0o2775, Typeflag: tar.TypeDir},
		{Name: "./tmp/", Mode: 0o1777, Typeflag: tar.TypeDir},
		{Name: "./dev/null", Mode: 0o666, Typeflag: tar.TypeChar},
	} {
		require.NoError(t, tw.WriteHeader(hdr))
		_, _ = tw.Write(make([]byte, hdr.Size))
	}
	require.NoError(t, tw.Close())
	to := tar.NewWriter(&out)
	require.NoError(t, copyTar(to, &in))
	require.NoError(t, to.Close())
	modes := map[string]int64{}
	for tr := tar.NewReader(&out); ; {
		hdr, err := tr.Next()
		if err != nil {
			break
		}
		modes[hdr.Name] = hdr.Mode
	}
	require.Equal(t, map[string]int64{"./usr/bin/su": 0o755, "./var/mail/": 0o775, "./tmp/": 0o1777}, modes)
}

// fakeDebootstrap puts a shell script on the PATH in mmdebstrap's place.
func fakeDebootstrap(t *testing.T, script string) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mmdebstrap")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestMmdebstrapsFailureCarriesItsLastLines(t *testing.T) {
	fakeDebootstrap(t, `for i in 1 2 3 4 5 6 7 8 9; do echo "line $i" >&2; done; echo "E: no mirror" >&2; exit 9`)
	err := newBuild(nil, nil).copyDebian(t.Context(), tar.NewWriter(io.Discard))
	require.ErrorContains(t, err, "exit status 9")
	require.ErrorContains(t, err, "line 9; E: no mirror")
	require.NotContains(t, err.Error(), "line 2;")
}

func TestMmdebstrapIsToldToEndWhenTheContextEnds(t *testing.T) {
	note := filepath.Join(t.TempDir(), "ended")
	fakeDebootstrap(t, fmt.Sprintf(`trap 'kill -9 $!; echo ended >%s; exit 1' TERM; sleep 60 & echo ready >&2; wait; exit 0`, note))
	ctx, cancel := context.WithCancel(t.Context())
	b := newBuild(nil, &Options{Progress: func(string) { cancel() }})
	require.Error(t, b.copyDebian(ctx, tar.NewWriter(io.Discard)))
	require.FileExists(t, note)
}

func TestMmdebstrapGetsThePackagesAndTheMirror(t *testing.T) {
	args := newBuild(nil, &Options{Mirror: "http://mirror.example/debian"}).debootstrapArgs()
	require.Contains(t, args[0], "--include=attr,bash,ca-certificates,")
	require.Equal(t, []string{"trixie", "-", "http://mirror.example/debian"}, args[len(args)-3:])
	require.Equal(t, []string{"trixie", "-"}, newBuild(nil, nil).debootstrapArgs()[len(args)-3:])
}

func TestTheArchiveIsADockerArchiveOfOneLayer(t *testing.T) {
	layer, err := os.CreateTemp(t.TempDir(), "layer")
	require.NoError(t, err)
	defer layer.Close()
	_, err = layer.WriteString("the layer")
	require.NoError(t, err)
	sum := sha256.Sum256([]byte("the layer"))
	archive, err := newArchive("localhost/x:1", layer, sum[:])
	require.NoError(t, err)
	whole, err := io.ReadAll(archive)
	require.NoError(t, err)
	require.Zero(t, len(whole)%512)
	files := readTar(bytes.NewReader(whole))
	require.Equal(t, "the layer", files["layer.tar"])
	require.JSONEq(t, `[{"Config":"config.json","Layers":["layer.tar"],"RepoTags":["localhost/x:1"]}]`, files["manifest.json"])
	var config struct {
		OS     string
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(files["config.json"]), &config))
	require.Equal(t, "linux", config.OS)
	require.Equal(t, []string{fmt.Sprintf("sha256:%x", sum)}, config.RootFS.DiffIDs)
}

func TestLinesAreCutAndProgressBarsAreLines(t *testing.T) {
	var got []string
	w := &lineWriter{line: func(s string) { got = append(got, s) }}
	for _, part := range []string{"one\ntw", "o\n\n 10%\r20%\r", string(bytes.Repeat([]byte("x"), 2*maxLine))} {
		n, err := io.WriteString(w, part)
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.Equal(t, []string{"one", "two", "10%", "20%", string(bytes.Repeat([]byte("x"), maxLine))}, got)
}
