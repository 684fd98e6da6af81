package digest

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wisbox/wisbox/internal/budget"
)

// Limits of one look at a workspace. A step is one entry of a directory, or 64 bytes of text.
var (
	limits = budget.Limits{Out: 64 << 10, Memory: 24 << 20, Steps: 1_000_000, Time: 5 * time.Second}

	walking = budget.Limits{Memory: 12 << 20, Steps: 500_000, Time: 3 * time.Second}
	project = budget.Limits{Memory: 8 << 20, Steps: 200_000, Time: time.Second}
)

const (
	maxEntries   = 50_000    // entries kept
	maxInDir     = 10_000    // entries kept of one directory, in addition to manifests
	maxSeenInDir = 100_000   // entries read of one directory
	batch        = 256       // entries read of a directory at a time
	largeFile    = 1 << 20   // minimum bytes of a file for a caveat
	entryBytes   = 128       // bytes of memory of an entry besides its path
	stepBytes    = 64        // bytes of text per step
	maxRead      = 256 << 10 // bytes read of a file
)

// skippedDirs contain generated or third-party files: they are named, but not counted.
var skippedDirs = map[string]string{
	".git": "", ".hg": "", ".svn": "",
	"node_modules": "installed packages", "vendor": "vendored code", ".venv": "a Python environment", "venv": "a Python environment",
	"__pycache__": "", ".mypy_cache": "", ".pytest_cache": "", ".ruff_cache": "", ".tox": "", ".cache": "", ".idea": "", ".vscode": "",
	"target": "build output", "dist": "build output", "build": "build output",
}

// survey is the result of one walk.
type survey struct {
	fsys fs.FS
	b    *budget.Budget

	files   []found // sorted by path
	dirs    map[string]bool
	skipped []string // paths of skipped directories that aren't empty
	nested  []string // nested repositories
	cut     bool     // the walk is incomplete
	partly  []string // files that were read partly

	projects []string // directories with a project, "." first
	more     int      // number of further ones that weren't examined

	walked *budget.Budget // charged with the survey's memory
}

type found struct {
	path string
	size int64
}

// look walks the workspace from the top down, so that a limit cuts off deep files. The
// caller closes the survey.
func look(b *budget.Budget, fsys fs.FS) (*survey, error) {
	s := &survey{fsys: fsys, b: b, dirs: map[string]bool{}, walked: b.Part(walking)}
	err := s.walk(s.walked)
	switch {
	case b.Check() != nil && !errors.Is(b.Check(), budget.ErrExceeded): // the caller's context ended
		err = b.Check()
	case s.walked.Check() != nil:
		s.cut, err = true, nil
	}
	if err != nil {
		s.close()
		return nil, err
	}
	slices.SortFunc(s.files, func(a, b found) int { return strings.Compare(a.path, b.path) })
	slices.Sort(s.skipped)
	slices.Sort(s.nested)
	return s, nil
}

func (s *survey) close() { s.walked.Close() }

// walk fails if the top can't be read; any other directory may vanish meanwhile.
func (s *survey) walk(b *budget.Budget) error {
	below, err := s.list(b, ".")
	for len(below) > 0 && b.Check() == nil {
		more, _ := s.list(b, below[0])
		below = append(below[1:], more...)
	}
	return err
}

// list records the entries of a directory, and returns the directories to descend into.
func (s *survey) list(b *budget.Budget, dir string) (below []string, err error) {
	if err := b.Step(1 + len(dir)/stepBytes); err != nil {
		return nil, err
	}
	f, err := s.fsys.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil, errors.New("is not a directory")
	}
	for seen := 0; ; {
		entries, err := d.ReadDir(batch)
		for _, e := range entries {
			seen++
			if name := s.note(b, dir, e, seen); name != "" {
				below = append(below, name)
			}
		}
		if err != nil || len(entries) == 0 || b.Check() != nil { // at its end, gone, or enough
			break
		}
		if seen >= maxSeenInDir {
			s.probe(b, dir)
			break
		}
	}
	slices.Sort(below)
	return below, nil
}

// note records an entry if there is room. A project's manifest is recorded even in a directory that is too large.
func (s *survey) note(b *budget.Budget, dir string, e fs.DirEntry, seen int) (below string) {
	if b.Step(1) != nil {
		return ""
	}
	known := len(s.files) + len(s.dirs)
	if (known >= maxEntries || seen > maxInDir) && (known >= 2*maxEntries || !manifest(e.Name()) && !notable(e.Name())) {
		s.cut = true
		return ""
	}
	name := path.Join(dir, e.Name())
	if b.Hold(entryBytes+len(name)) != nil {
		return ""
	}
	return s.entry(dir, name, e)
}

// probe looks for project files by name, in a directory that is too large to be read completely.
func (s *survey) probe(b *budget.Budget, dir string) {
	s.cut = true
	for _, name := range manifests {
		info, err := fs.Lstat(s.fsys, path.Join(dir, name))
		if err == nil && !slices.ContainsFunc(s.files, func(f found) bool { return f.path == path.Join(dir, name) }) {
			s.note(b, dir, fs.FileInfoToDirEntry(info), 0)
		}
	}
}

// entry records a file, or returns the path of a directory to walk.
func (s *survey) entry(dir, name string, e fs.DirEntry) (below string) {
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

// has reports whether a regular file of that path was found.
func (s *survey) has(name string) bool {
	_, ok := slices.BinarySearchFunc(s.files, name, func(f found, name string) int { return strings.Compare(f.path, name) })
	return ok
}

// first returns the first of names that dir has, or "".
func (s *survey) first(dir string, names ...string) string {
	for _, n := range names {
		if p := path.Join(dir, n); s.has(p) {
			return p
		}
	}
	return ""
}

// below returns the files below dir ("." for all).
func (s *survey) below(dir string) []found {
	if dir == "." {
		return s.files
	}
	at := func(prefix string) int {
		i, _ := slices.BinarySearchFunc(s.files, prefix, func(f found, prefix string) int { return strings.Compare(f.path, prefix) })
		return i
	}
	return s.files[at(dir+"/"):at(dir+"0")] // "0" follows "/"
}
