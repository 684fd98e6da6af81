package wasm

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/tool"
)

// engineVersion changes when the same module and driver would give other results
// or another memory.
const engineVersion = "wisbox-wasm-2"

//go:embed boot/before.py
var bootBefore string

//go:embed boot/after.py
var bootAfter string

// bootSource is the Python program that an interpreter starts with.
func bootSource() string { return bootBefore + "\n" + driver.Source() + "\n" + bootAfter }

// source is a module that was found, not yet looked into.
type source struct {
	module []byte
	key    string // of module, driver and engine
}

// DefaultCacheDir is wisbox/wasm in the user's cache directory.
func DefaultCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", tool.Errorf(tool.Unavailable, "there is no cache directory: HOME or XDG_CACHE_HOME must be set").Because(err)
	}
	return filepath.Join(dir, "wisbox", "wasm"), nil
}

// IsInstalled reports whether an engine with these options finds a module.
func IsInstalled(opts *Options) bool {
	dir := opts.CacheDir
	if dir == "" {
		var err error
		if dir, err = DefaultCacheDir(); err != nil {
			return false
		}
	}
	path, _ := locate(opts.Module, dir)
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// locate gives the path of the module: the explicit one, else that of the
// environment variable, else the one installed in dir. It need not exist.
func locate(explicit, dir string) (path string, installed bool) {
	if explicit != "" {
		return explicit, false
	}
	if path := named(); path != "" {
		return path, false
	}
	return filepath.Join(dir, moduleFile), true
}

// errMissing says both ways to get a module.
func errMissing(cause error) error {
	return tool.Errorf(tool.Unsupported, "python in WebAssembly is not installed: run `wisbox wasm install`, or name a python.wasm with --wasm-python or %s", ModuleVariable).In("sandbox").Because(cause)
}

func findSource(explicit, dir string) (*source, error) {
	path, installed := locate(explicit, dir)
	module, err := readModule(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errMissing(err)
	case err != nil:
		return nil, tool.Errorf(tool.Unsupported, "the python.wasm that is named can't be read; name another one").Because(err)
	}
	sum := sha256.Sum256(module)
	if installed && hex.EncodeToString(sum[:]) != moduleSHA256 {
		return nil, tool.Errorf(tool.Unsupported, "the installed python.wasm is damaged; run `wisbox wasm install` again")
	}
	h := sha256.New()
	for _, part := range []string{engineVersion, runtime.GOARCH, string(sum[:]), bootSource()} {
		digest := sha256.Sum256([]byte(part))
		h.Write(digest[:])
	}
	return &source{module: module, key: hex.EncodeToString(h.Sum(nil))}, nil
}
