package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// The module contains python-build-standalone's CPython for some platforms: a list, files.json, and the files, of which
// the large ones are compressed. None of it is compiled.
const (
	pythonModule  = "github.com/kluctl/go-embed-python@v0.0.0-3.12.3-20240415-1"
	pythonSum     = "h1:IX2O3LJUL0AjYsROGZ4aNENTEb3c/Ll/0b9Yb/8P61Q="
	pythonVersion = "3.12.3"
	pythonPrefix  = "usr/local"
)

// pythonFiles is an unpacked module's tree for this machine.
type pythonFiles struct{ dir string }

type pythonFile struct {
	Name       string `json:"name"`
	Perm       uint32 `json:"perm"` // like Go's fs.FileMode
	Symlink    string `json:"symlink"`
	Compressed bool   `json:"compressed"`
}

// fetchPython downloads the module with the go command, with the user's own proxy settings and cache. It checks our own
// sum, independent of GOSUMDB.
func fetchPython(ctx context.Context) (pythonFiles, error) {
	mod, err := downloadModule(ctx)
	if err != nil {
		return pythonFiles{}, fmt.Errorf("fetch CPython %s: %w", pythonVersion, err)
	}
	if mod.Sum != pythonSum {
		return pythonFiles{}, fmt.Errorf("fetch CPython %s: the module's sum is %s, not %s", pythonVersion, mod.Sum, pythonSum)
	}
	dir := filepath.Join(mod.Dir, "python", "internal", "data", "linux-"+runtime.GOARCH)
	if _, err := os.Stat(dir); err != nil {
		return pythonFiles{}, fmt.Errorf("no relocatable CPython for %s: the base must come from a registry", runtime.GOARCH)
	}
	return pythonFiles{dir}, nil
}

type module struct{ Dir, Sum, Error string }

// downloadModule runs in a new empty module, so that no other go.mod or go.work has an effect.
func downloadModule(ctx context.Context) (module, error) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return module{}, errors.New("the go command is missing: install the Debian package golang-go (apt-get install golang-go), or Go from go.dev")
	}
	dir, err := os.MkdirTemp("", "wisbox-cpython-")
	if err != nil {
		return module{}, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module fetch\n"), 0o600); err != nil {
		return module{}, err
	}
	cmd := exec.CommandContext(ctx, goTool, "mod", "download", "-json", pythonModule)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GO111MODULE=on", "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, runErr := cmd.Output()
	return parseModule(out, runErr, stderr.String())
}

// parseModule parses the output of go mod download: on failure the reason is in the JSON, on stderr, or in neither.
func parseModule(out []byte, runErr error, stderr string) (module, error) {
	var mod module
	err := json.Unmarshal(out, &mod)
	switch {
	case mod.Error != "":
		return module{}, errors.New(mod.Error)
	case runErr != nil:
		return module{}, fmt.Errorf("go mod download: %w: %s", runErr, strings.TrimSpace(stderr))
	}
	return mod, err
}

// writeTo appends the tree to a tar, under /usr/local, owned by root.
func (p pythonFiles) writeTo(tw *tar.Writer) error {
	data, err := os.ReadFile(filepath.Join(p.dir, "files.json"))
	if err != nil {
		return err
	}
	var list struct {
		Files []pythonFile `json:"files"`
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, f := range list.Files {
		if !strings.Contains(f.Name, "/") {
			continue // Debian's /usr/local has bin and lib already, and a layer must not name a path twice
		}
		if err := p.writeFile(tw, f); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return nil
}

func (p pythonFiles) writeFile(tw *tar.Writer, f pythonFile) error {
	if !filepath.IsLocal(f.Name) {
		return errors.New("the name leaves the tree")
	}
	hdr := &tar.Header{Name: path.Join(pythonPrefix, f.Name), Mode: 0o755, Format: tar.FormatPAX}
	switch {
	case os.FileMode(f.Perm).IsDir():
		hdr.Typeflag = tar.TypeDir
		return tw.WriteHeader(hdr)
	case f.Symlink != "":
		hdr.Typeflag, hdr.Linkname = tar.TypeSymlink, f.Symlink
		return tw.WriteHeader(hdr)
	}
	body, err := p.read(f)
	if err != nil {
		return err
	}
	if f.Perm&0o111 == 0 {
		hdr.Mode = 0o644
	}
	hdr.Typeflag, hdr.Size = tar.TypeReg, int64(len(body))
	if err := tw.WriteHeader(hdr); err != nil {
		return err
	}
	_, err = tw.Write(body)
	return err
}

// read returns a file's content, for libraries and programs without symbols.
func (p pythonFiles) read(f pythonFile) ([]byte, error) {
	name := filepath.Join(p.dir, filepath.FromSlash(f.Name))
	if !f.Compressed {
		return os.ReadFile(name)
	}
	file, err := os.Open(name + ".gz")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	zr, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return readStripped(zr)
}

// readStripped reads an ELF file up to the end of its loaded part, and other files completely.
func readStripped(r io.Reader) ([]byte, error) {
	head := make([]byte, elfHeadSize)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	end := loadedSize(head[:n])
	if end <= int64(n) {
		rest, err := io.ReadAll(r)
		return append(head[:n], rest...), err
	}
	dropSections(head)
	body, err := io.ReadAll(io.LimitReader(r, end-int64(n)))
	return append(head[:n], body...), err
}
