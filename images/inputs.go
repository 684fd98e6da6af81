package images

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"sync"

	"github.com/wisbox/wisbox/evaltool/lisp/driver"
)

//go:embed Containerfile finish.sh packages.txt sitecustomize.py ensurepip.py _distutils_system_mod.py pip.conf apt.conf gitconfig profile
var files embed.FS

// Containerfile returns the recipe, for other ways to build the image: its context is the directory that contains it.
func Containerfile() []byte { return mustRead("Containerfile") }

// inputs returns a hash of all inputs of the image.
var inputs = sync.OnceValue(func() string {
	h := sha256.New()
	_, _ = io.Copy(h, contextTar())
	_, _ = io.WriteString(h, baseRecipe())
	return hex.EncodeToString(h.Sum(nil))
})

// contextTar returns the build context: the same bytes every time.
func contextTar() io.Reader {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		addFile(tw, e.Name(), mustRead(e.Name()))
	}
	addFile(tw, "lisp-driver.lisp", []byte(driver.Source()))
	mustNil(tw.Close())
	return &buf
}

func addFile(tw *tar.Writer, name string, data []byte) {
	hdr := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}
	mustNil(tw.WriteHeader(hdr))
	_, err := tw.Write(data)
	mustNil(err)
}

// The files are part of the program and the buffer is memory: neither can fail.
func mustRead(name string) []byte {
	data, err := files.ReadFile(name)
	mustNil(err)
	return data
}

func mustNil(err error) {
	if err != nil {
		panic(err)
	}
}
