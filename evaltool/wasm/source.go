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
	"runtime/debug"

	"github.com/wisbox/wisbox/evaltool/python/driver"
	"github.com/wisbox/wisbox/tool"
)

// engineVersion must change if the same module and driver would give other results or another memory.
const engineVersion = "wisbox-wasm-2"

//go:embed boot/before.py
var bootBefore string

//go:embed boot/platform.py
var bootPlatform string

//go:embed boot/after.py
var bootAfter string

// bootSource returns the Python program that starts an interpreter.
func bootSource() string {
	return bootBefore + "\n" + driver.Source() + "\n" + bootPlatform + "\n" + bootAfter
}

// source is a module that was found but not checked yet.
type source struct {
	module []byte
	key    string // of module, driver and engine
}

// DefaultCacheDir returns wisbox/wasm in the user's cache directory.
func DefaultCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", tool.Errorf(tool.Unavailable, "there is no cache directory: HOME or XDG_CACHE_HOME must be set").Because(err)
	}
	return filepath.Join(dir, "wisbox", "wasm"), nil
}

// ErrNotInstalled is the cause of an error if no module is named and none is installed.
var ErrNotInstalled = errors.New("python.wasm is not installed")

// SharedDir has the module for all users of a machine or an image. Engines look there if their own directory has none.
const SharedDir = "/usr/local/share/wisbox"

// sharedDir is SharedDir but in tests.
var sharedDir = SharedDir

// InstalledFiles returns the names in SharedDir of the module that is installed for this user and its license, each
// with the path of its file, or nil if the module isn't installed.
func InstalledFiles() map[string]string {
	dir, err := DefaultCacheDir()
	if err != nil {
		return nil
	}
	files := map[string]string{}
	for _, name := range []string{moduleFile, licenseFile} {
		path := inDirs(dir, name)
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		files[name] = path
	}
	return files
}

// inDirs returns the path of a file in dir, or in SharedDir if it is only there.
func inDirs(dir, name string) string {
	own, shared := filepath.Join(dir, name), filepath.Join(sharedDir, name)
	if _, err := os.Lstat(own); !errors.Is(err, fs.ErrNotExist) {
		return own
	}
	if _, err := os.Lstat(shared); err != nil {
		return own
	}
	return shared
}

// locate returns the path of the module: the explicit path, else the environment variable's, else the path of the one
// installed in dir or SharedDir. It need not exist.
func locate(explicit, dir string) (path string, installed bool) {
	if explicit != "" {
		return explicit, false
	}
	if path := named(); path != "" {
		return path, false
	}
	return inDirs(dir, moduleFile), true
}

// errMissing returns an error with all ways to get a module.
func errMissing() error {
	return tool.Errorf(tool.Unsupported, "python in WebAssembly is not installed: run `wisbox lab wasm install`, and for sessions on Kubernetes then `wisbox image wrap`, or name a python.wasm with --wasm-python or %s", ModuleVariable).In("sandbox").Because(ErrNotInstalled)
}

// wazeroVersion returns the version of the library in this program, "" in some tests.
func wazeroVersion() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/tetratelabs/wazero" {
			return dep.Version
		}
	}
	return ""
}

func findSource(explicit, dir string) (*source, error) {
	path, installed := locate(explicit, dir)
	module, err := readModule(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && installed:
		return nil, errMissing()
	case err != nil && installed:
		return nil, tool.Errorf(tool.Unsupported, "the installed python.wasm can't be read; run `wisbox lab wasm install` again").Because(err)
	case err != nil:
		why := "is not a file that this user can read"
		if errors.Is(err, fs.ErrNotExist) {
			why = "does not exist"
		}
		return nil, tool.Errorf(tool.Unsupported, "the python.wasm of --wasm-python, %s or %s %s; name another one, or leave it out and run `wisbox lab wasm install`", ModuleVariable, moduleAlias, why).In("sandbox").Because(err)
	}
	sum := sha256.Sum256(module)
	if installed && hex.EncodeToString(sum[:]) != moduleSHA256 {
		return nil, tool.Errorf(tool.Unsupported, "the installed python.wasm is damaged; run `wisbox lab wasm install` again")
	}
	h := sha256.New()
	for _, part := range []string{engineVersion, wazeroVersion(), runtime.GOARCH, string(sum[:]), bootSource()} {
		digest := sha256.Sum256([]byte(part))
		h.Write(digest[:])
	}
	return &source{module: module, key: hex.EncodeToString(h.Sum(nil))}, nil
}
