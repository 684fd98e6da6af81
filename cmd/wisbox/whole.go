package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox/internal/scratch"
	"github.com/wisbox/wisbox/internal/sys"
)

// wholeFile is a file of the host that gets its name when it is complete. Until then it has none, where the file system
// permits that, so that a killed process leaves nothing.
type wholeFile struct {
	*os.File
	root *os.Root
	name string // its place below root
	temp string // its present name, or ""
	dir  *os.File
}

func newWholeFile(root *os.Root, name string, mode fs.FileMode) (*wholeFile, error) {
	dir, err := root.Open(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	w := &wholeFile{root: root, name: name, dir: dir}
	if fd, err := sys.Unnamed(int(dir.Fd()), uint32(mode.Perm())); err == nil {
		w.File = os.NewFile(uintptr(fd), filepath.Join(root.Name(), name))
		return w, nil
	}
	w.temp = tempBeside(name)
	if w.File, err = root.OpenFile(w.temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return w, nil
}

// place closes the file and gives it its name, in place of another file.
func (w *wholeFile) place() error {
	if w.temp == "" {
		w.temp = tempBeside(w.name)
		if err := sys.LinkUnnamed(int(w.Fd()), int(w.dir.Fd()), filepath.Base(w.temp)); err != nil {
			w.temp = ""
			return &fs.PathError{Op: "link", Path: w.Name(), Err: err}
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	err := w.root.Rename(w.temp, w.name)
	if err == nil {
		w.temp = ""
	}
	return err
}

// discard ends the work on the file, which stays only if it was placed.
func (w *wholeFile) discard() {
	_ = w.Close()
	_ = w.dir.Close()
	if w.temp != "" {
		_ = w.root.Remove(w.temp)
	}
}

// tempBeside returns a fresh name in the directory of a file.
func tempBeside(name string) string {
	return filepath.Join(filepath.Dir(name), copyPrefix+strings.ToLower(rand.Text()))
}

const copyPrefix = ".wisbox-cp-"

// wholeDir is a directory of the host that is filled. A new one gets its name when it is complete, and the next copy to
// the same place removes what a killed one has left.
type wholeDir struct {
	*os.Root
	to    string
	fresh *scratch.Dir // nil if the directory was there
}

func newWholeDir(to string) (*wholeDir, error) {
	to = filepath.Clean(to)
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(to, dirMode); err != nil { // it may be no directory
			return nil, err
		}
		root, err := os.OpenRoot(to)
		return &wholeDir{root, to, nil}, err
	}
	if err := os.MkdirAll(filepath.Dir(to), dirMode); err != nil {
		return nil, err
	}
	fresh, err := scratch.Below(filepath.Dir(to), copyPrefix)
	if err != nil {
		return nil, err
	}
	inside := filepath.Join(fresh.Name, copied)
	err = fresh.Parent().Mkdir(inside, dirMode)
	var root *os.Root
	if err == nil {
		root, err = fresh.Parent().OpenRoot(inside)
	}
	if err != nil {
		return nil, errors.Join(err, fresh.Close())
	}
	return &wholeDir{root, to, fresh}, nil
}

const (
	dirMode = 0o755
	copied  = "copy" // the new directory, which has the mode that this user's directories get
)

// place gives a new directory its name.
func (d *wholeDir) place() error {
	if d.fresh == nil {
		return nil
	}
	return d.fresh.Parent().Rename(filepath.Join(d.fresh.Name, copied), filepath.Base(d.to))
}

// error describes an error by the name that the file has in the end.
func (d *wholeDir) error(err error) error {
	var at *fs.PathError
	if !errors.As(err, &at) {
		return err
	}
	rel := strings.TrimPrefix(at.Path, d.Name()+string(filepath.Separator))
	return hostError(&fs.PathError{Op: at.Op, Path: filepath.Join(d.to, rel), Err: at.Err})
}

func (d *wholeDir) close() {
	_ = d.Close()
	_ = d.fresh.Close()
}
