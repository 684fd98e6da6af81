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

// Bounds of one look at a workspace, whatever programs put there. A step is one
// entry of a directory, or 64 bytes of text.
var (
	limits = budget.Limits{Out: 64 << 10, Memory: 24 << 20, Steps: 1_000_000, Time: 5 * time.Second}

	walking = budget.Limits{Memory: 12 << 20, Steps: 500_000, Time: 3 * time.Second}
	project = budget.Limits{Memory: 8 << 20, Steps: 200_000, Time: time.Second}
)

const (
	maxEntries   = 50_000    // that are remembered
	maxInDir     = 10_000    // of one directory; what tells of a project is one more
	maxSeenInDir = 100_000   // that are read of one directory
	batch        = 256       // entries that are read of a directory at a time
	largeFile    = 1 << 20   // bytes from which a file is a caveat
	entryBytes   = 128       // of memory that an entry takes beside its path
	stepBytes    = 64        // of text that are one step
	maxRead      = 256 << 10 // bytes of a file that are read
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
	fsys fs.FS
	b    *budget.Budget

	files   []found // sorted by path
	dirs    map[string]bool
	skipped []string // paths of skipped directories that hold something
	nested  []string // nested repositories
	cut     bool     // some of it was not looked at
	partly  []string // files of which only a part was read

	projects []string // directories that have one, "." first
	more     int      // of them that were not looked into

	walked *budget.Budget // holds what the survey takes
}

type found struct {
	path string
	size int64
}

// look walks the workspace, what lies near the top first: what is cut is deep.
// Whoever gets a survey closes it.
func look(b *budget.Budget, fsys fs.FS) (*survey, error) {
	s := &survey{fsys: fsys, b: b, dirs: map[string]bool{}, walked: b.Part(walking)}
	err := s.walk(s.walked)
	switch {
	case b.Check() != nil && !errors.Is(b.Check(), budget.ErrExceeded): // the caller's end
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

// walk fails where the top can't be read; any other directory may go meanwhile.
func (s *survey) walk(b *budget.Budget) error {
	below, err := s.list(b, ".")
	for len(below) > 0 && b.Check() == nil {
		more, _ := s.list(b, below[0])
		below = append(below[1:], more...)
	}
	return err
}

// list notes what a directory has, and gives the directories in it to look into.
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
		return nil, errors.New("is no directory")
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

// note takes an entry down where there is room. One that tells of a project has
// some in a directory that is too large, too.
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

// probe asks for the files that tell of a project, in a directory that is too large
// to be read to its end.
func (s *survey) probe(b *budget.Budget, dir string) {
	s.cut = true
	for _, name := range manifests {
		info, err := fs.Lstat(s.fsys, path.Join(dir, name))
		if err == nil && !slices.ContainsFunc(s.files, func(f found) bool { return f.path == path.Join(dir, name) }) {
			s.note(b, dir, fs.FileInfoToDirEntry(info), 0)
		}
	}
}

// entry notes a file; of a directory to walk it gives the path.
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
	at := func(prefix string) int {
		i, _ := slices.BinarySearchFunc(s.files, prefix, func(f found, prefix string) int { return strings.Compare(f.path, prefix) })
		return i
	}
	return s.files[at(dir+"/"):at(dir+"0")] // "0" follows "/"
}
