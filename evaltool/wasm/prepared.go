package wasm

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Extensions of the files and directories of a source in the cache directory.
const (
	stateExt    = ".state"    // a started interpreter
	compiledExt = ".compiled" // a directory of the compiled module; its files' names depend on the processor
)

// PreparedFiles returns the files that an engine makes of the installed module on its first use: names for
// [Options.Prepared], each with the path of its file. It makes them if they don't exist, which takes ten seconds. It
// returns nil if the module isn't installed.
func PreparedFiles(ctx context.Context, opts *Options) (map[string]string, error) {
	installed := InstalledFiles()
	if installed == nil {
		return nil, nil
	}
	o := *opts
	o.Module = installed[moduleFile]
	e, err := New(&o)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	if err := e.Warm(ctx); err != nil {
		return nil, err
	}
	dir, key := e.opts.CacheDir, e.Version()
	files := map[string]string{key + stateExt: filepath.Join(dir, key+stateExt)}
	err = fs.WalkDir(os.DirFS(dir), key+compiledExt, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[name] = filepath.Join(dir, name)
		}
		return err
	})
	return files, err
}

// seed copies the files of a key that dir lacks from prepared. The state comes last: without it, the rest isn't used.
func seed(prepared fs.FS, key, dir string) error {
	state := filepath.Join(dir, key+stateExt)
	if _, err := os.Lstat(state); !errors.Is(err, fs.ErrNotExist) {
		return errHas
	}
	if _, err := fs.Stat(prepared, key+stateExt); err != nil {
		return err
	}
	err := fs.WalkDir(prepared, key+compiledExt, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return copyFile(prepared, name, filepath.Join(dir, filepath.FromSlash(name)))
	})
	if err != nil {
		return err
	}
	return copyFile(prepared, key+stateExt, state)
}

var errHas = errors.New("the cache directory has a started interpreter")

func copyFile(from fs.FS, name, to string) error {
	f, err := from.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return writeFrom(to, f)
}

// unseed removes the files of a key.
func unseed(key, dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, key+compiledExt)), os.RemoveAll(filepath.Join(dir, key+stateExt)))
}

// openPrepared calls open, and again without the files of prepared if it failed with them.
func openPrepared(prepared func() (fs.FS, error), key, dir string, open func() (*interpreter, error)) (*interpreter, error) {
	if prepared == nil {
		return open()
	}
	files, err := prepared()
	if err != nil {
		return open()
	}
	seeded := seed(files, key, dir) == nil
	if c, ok := files.(io.Closer); ok {
		_ = c.Close() // nothing was written
	}
	i, err := open()
	if err == nil || !seeded {
		return i, err
	}
	if failed := unseed(key, dir); failed != nil {
		return nil, errors.Join(err, failed)
	}
	return open()
}
