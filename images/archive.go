package images

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"time"
)

// archivePadding ends a tar: two blocks of zeros.
const archivePadding = 1024

// newArchive returns a docker-archive with one layer, read from file as it is sent.
func newArchive(ref string, layer *os.File, digest []byte) (io.Reader, error) {
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	var head bytes.Buffer
	tw := tar.NewWriter(&head)
	config := imageConfig("sha256:" + hex.EncodeToString(digest))
	manifest := mustJSON([]map[string]any{{"Config": "config.json", "RepoTags": []string{ref}, "Layers": []string{"layer.tar"}}})
	for name, data := range map[string][]byte{"manifest.json": manifest, "config.json": config} {
		mustNil(tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Format: tar.FormatUSTAR}))
		_, err := tw.Write(data)
		mustNil(err)
	}
	mustNil(tw.WriteHeader(&tar.Header{Name: "layer.tar", Mode: 0o644, Size: size, Format: tar.FormatPAX}))
	end := bytes.NewReader(make([]byte, (512-size%512)%512+archivePadding))
	return io.MultiReader(&head, io.NewSectionReader(layer, 0, size), end), nil
}

func imageConfig(diffID string) []byte {
	now := time.Now().UTC().Truncate(time.Second)
	return mustJSON(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      now,
		"config": map[string]any{
			"Env":    []string{"PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"},
			"Labels": map[string]string{labelRecipe: recipeHash()},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{diffID}},
		"history": []map[string]any{{"created": now, "created_by": "wisbox: Debian " + suite + ", CPython " + pythonVersion}},
	})
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	mustNil(err)
	return data
}
