package digest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Bounds of one look at a workspace, whatever programs put there.
const (
	maxEntries = 50_000
	maxLevels  = 8
	maxTime    = 5 * time.Second
	maxRead    = 256 << 10 // bytes of a file that is read
	maxReads   = 200       // files that are read
	largeFile  = 1 << 20   // bytes from which a file is a caveat
)

// skipped directories hold what others made: they are named, not counted.
var skippedDirs = map[string]string{
	".git": "", ".hg": "", ".svn": "",
	"node_modules": "installed packages", "vendor": "vendored code", ".venv": "a Python environment", "venv": "a Python environment",
	"__pycache__": "", ".mypy_cache": "", ".pytest_cache": "", ".ruff_cache": "", ".tox": "", ".cache": "", ".idea": "", ".vscode": "",
	"target": "build output", "dist": "build output", "build": "build output",
}

// survey is what one walk has found.
type survey struct {
	fsys    fs.FS
	ctx     context.Context
	until   time.Time
	reads   int
	entries int

	files   []found // sorted by path
	dirs    map[string]bool
	skipped []string // paths of skipped directories that hold something
	nested  []string // nested repositories
	cut     bool
}

type found struct {
	path string
	size int64
}

func look(ctx context.Context, fsys fs.FS) (*survey, error) {
	s := &survey{fsys: fsys, ctx: ctx, until: time.Now().Add(maxTime), dirs: map[string]bool{}}
	if err := s.walk(".", 0); err != nil {
		return nil, err
	}
	slices.SortFunc(s.files, func(a, b found) int { return strings.Compare(a.path, b.path) })
	return s, nil
}

// walk leaves out what can't be read: a directory may go while it is looked at.
func (s *survey) walk(dir string, level int) error {
	entries, err := readDir(s.fsys, dir)
	if err != nil && level == 0 {
		return err
	}
	var below []string
	for _, e := range entries {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		if s.entries++; s.entries > maxEntries || time.Now().After(s.until) {
			s.cut = true
			return nil
		}
		if name := s.entry(dir, e); name != "" {
			below = append(below, name)
		}
	}
	for _, name := range below {
		if level == maxLevels {
			s.cut = true
			return nil
		}
		if err := s.walk(name, level+1); err != nil {
			return err
		}
	}
	return nil
}

// readDir is fs.ReadDir with a bound on one directory.
func readDir(fsys fs.FS, dir string) ([]fs.DirEntry, error) {
	f, err := fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, errors.New("is no directory")
	}
	entries, err := d.ReadDir(maxEntries + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// entry notes a file; of a directory to walk it gives the path.
func (s *survey) entry(dir string, e fs.DirEntry) (below string) {
	name := path.Join(dir, e.Name())
	switch {
	case e.IsDir():
		return s.directory(dir, name, e.Name())
	case e.Type().IsRegular():
		if info, err := e.Info(); err == nil {
			s.files = append(s.files, found{path: name, size: info.Size()})
		}
	}
	return ""
}

func (s *survey) directory(parent, name, base string) string {
	what, skip := skippedDirs[base]
	if base == ".git" && parent != "." {
		s.nested = append(s.nested, parent)
	}
	if !skip || base == "build" && s.isFile(name+"/__init__.py") {
		s.dirs[name] = true
		return name
	}
	if what != "" {
		s.skipped = append(s.skipped, name)
	}
	return ""
}

func (s *survey) isFile(name string) bool {
	info, err := fs.Stat(s.fsys, name)
	return err == nil && info.Mode().IsRegular()
}

// has says that a regular file of that path was found.
func (s *survey) has(name string) bool {
	_, ok := slices.BinarySearchFunc(s.files, name, func(f found, name string) int { return strings.Compare(f.path, name) })
	return ok
}

// first is the first of names that dir has, or "".
func (s *survey) first(dir string, names ...string) string {
	for _, n := range names {
		if p := path.Join(dir, n); s.has(p) {
			return p
		}
	}
	return ""
}

// below are the files below dir ("." for all).
func (s *survey) below(dir string) []found {
	if dir == "." {
		return s.files
	}
	var out []found
	for _, f := range s.files {
		if strings.HasPrefix(f.path, dir+"/") {
			out = append(out, f)
		}
	}
	return out
}

// read gives the beginning of a text file, "" for anything else.
func (s *survey) read(name string) string {
	if s.reads++; s.reads > maxReads || name == "" || !s.has(name) {
		return ""
	}
	f, err := s.fsys.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil || bytes.IndexByte(b, 0) >= 0 {
		return ""
	}
	return string(b)
}
