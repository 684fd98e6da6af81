package digest

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// Command is a command that builds, tests or checks the workspace. A shell runs it in the workspace's top directory.
type Command struct {
	Purpose string   `json:"purpose"` // build, test, lint, format
	Line    string   `json:"line"`
	Source  string   `json:"source"`          // the file that names it
	Needs   []string `json:"needs,omitempty"` // programs, and Python modules as "python3:NAME"
	CI      bool     `json:"ci,omitempty"`    // a CI file runs it too

	dir, local string // its project's directory, and the command to run there
}

// size returns the command's size in an answer.
func (c Command) size() int {
	n := len(c.Purpose) + len(c.Line) + len(c.Source)
	for _, need := range c.Needs {
		n += len(need)
	}
	return n
}

// Area is a top directory.
type Area struct {
	Path  string `json:"path"`
	Files int    `json:"files"`
	What  string `json:"what"` // its main language, or ""
}

// Language is a language by its files.
type Language struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// Report describes the files of a workspace. Paths and names are printable.
type Report struct {
	Files     int        `json:"files"`
	Bytes     int64      `json:"bytes"`
	Top       []string   `json:"top"` // notable files of the top directory
	Areas     []Area     `json:"areas"`
	Languages []Language `json:"languages"` // the largest first
	Commands  []Command  `json:"commands"`
	Caveats   []string   `json:"caveats"`
}

const (
	maxAreas    = 20
	maxCommands = 24
	maxTop      = 20
)

// Build examines a workspace. Time (5 s), memory (24 MiB), steps and output (64 KiB) are bounded for any content; at a
// limit the report is partial, with a caveat. Build fails if the top can't be read, or if ctx ends.
func Build(ctx context.Context, fsys fs.FS) (*Report, error) { return buildInTurn(ctx, fsys, working) }

// turns limits the number of simultaneous looks.
type turns chan struct{}

// working limits the looks of a process, whose memory adds up.
var working = make(turns, 2)

var errNoTurn = tool.Errorf(tool.Timeout, "nothing was looked at, because other looks took all the time; ask again")

// inTurn calls do with a budget when each of all has room. The waiting time counts.
func inTurn(ctx context.Context, do func(*budget.Budget) error, all ...turns) error {
	b := budget.New(ctx, limits)
	defer b.Close()
	for _, t := range all {
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-b.Context().Done():
			return cmp.Or(ctx.Err(), error(errNoTurn))
		}
	}
	return do(b)
}

// buildInTurn is like Build, but waits until each of all has room.
func buildInTurn(ctx context.Context, fsys fs.FS, all ...turns) (r *Report, err error) {
	err = inTurn(ctx, func(b *budget.Budget) error {
		r, err = build(b, fsys)
		return err
	}, all...)
	if errors.Is(err, errNoTurn) {
		return &Report{Caveats: []string{errNoTurn.Message}}, nil
	}
	return r, err
}

func build(b *budget.Budget, fsys fs.FS) (*Report, error) {
	s, err := look(b, fsys)
	if err != nil {
		return nil, err
	}
	defer s.close()
	r := &Report{Files: len(s.files)}
	for _, f := range s.files {
		r.Bytes += f.size
	}
	r.Top, r.Areas, r.Languages = top(s), areas(s), languages(s.b, s.files)
	r.Commands = commands(s)
	r.Caveats = caveats(s, r)
	if err := b.Check(); err != nil && !errors.Is(err, budget.ErrExceeded) {
		return nil, err
	}
	return r, nil
}

func top(s *survey) []string {
	var names []string
	for _, f := range s.files {
		if len(names) == maxTop || s.b.Step(1) != nil {
			break
		}
		if !strings.Contains(f.path, "/") && notable(f.path) {
			names = append(names, f.path)
		}
	}
	return names
}

var notableNames = []string{
	"makefile", "gnumakefile", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini", "noxfile.py", "package.json", "tsconfig.json",
	"go.mod", "go.work", "cargo.toml", "cmakelists.txt", "meson.build", "configure", "justfile", "taskfile.yml", "dockerfile", "containerfile",
	"pom.xml", "build.gradle", "gemfile", "composer.json", ".gitlab-ci.yml", ".pre-commit-config.yaml", "agents.md", "claude.md",
}

func notable(name string) bool {
	lower := strings.ToLower(name)
	return plain(name) && (slices.Contains(notableNames, lower) || strings.HasPrefix(lower, "readme") || strings.HasPrefix(lower, "license") ||
		strings.HasPrefix(lower, "contributing") || strings.HasPrefix(lower, "changelog"))
}

func areas(s *survey) []Area {
	var dirs []string
	for d := range s.dirs {
		if !strings.Contains(d, "/") {
			dirs = append(dirs, d)
		}
	}
	slices.Sort(dirs)
	out := make([]Area, 0, maxAreas)
	for _, dir := range dirs[:min(len(dirs), maxAreas)] {
		files := s.below(dir)
		a := Area{Path: shown(dir), Files: len(files)}
		if l := languages(s.b, files); len(l) > 0 {
			a.What = l[0].Name
		}
		out = append(out, a)
	}
	return out
}

var extensions = map[string]string{
	".py": "Python", ".pyi": "Python", ".go": "Go", ".js": "JavaScript", ".mjs": "JavaScript", ".cjs": "JavaScript", ".jsx": "JavaScript",
	".ts": "TypeScript", ".tsx": "TypeScript", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++", ".cxx": "C++", ".rs": "Rust",
	".java": "Java", ".kt": "Kotlin", ".rb": "Ruby", ".php": "PHP", ".sh": "Shell", ".bash": "Shell", ".lisp": "Lisp", ".cl": "Lisp", ".asd": "Lisp",
	".pl": "Perl", ".lua": "Lua", ".swift": "Swift", ".scala": "Scala", ".hs": "Haskell", ".ml": "OCaml", ".ex": "Elixir", ".exs": "Elixir",
	".sql": "SQL", ".r": "R", ".jl": "Julia", ".zig": "Zig", ".cs": "C#", ".html": "HTML", ".css": "CSS", ".ipynb": "Jupyter",
}

func languageOf(file string) string {
	ext := path.Ext(file)
	if len(ext) > 8 { // longer than any known one
		return ""
	}
	return extensions[strings.ToLower(ext)]
}

func languages(b *budget.Budget, files []found) []Language {
	byName := map[string]*Language{}
	for _, f := range files {
		if b.Step(1) != nil {
			break
		}
		name := languageOf(f.path)
		if name == "" {
			continue
		}
		if byName[name] == nil {
			byName[name] = &Language{Name: name}
		}
		byName[name].Files++
		byName[name].Bytes += f.size
	}
	var out []Language
	for _, l := range byName {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Language) int {
		if a.Bytes != b.Bytes {
			return int(min(1, max(-1, b.Bytes-a.Bytes)))
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// plain reports whether a name can be repeated unchanged.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-+@/", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 200
}

// shown returns a name for a reader, with a replacement for characters that aren't plain.
func shown(s string) string {
	if plain(s) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s[:min(len(s), 200)]) {
		if plain(string(rune(c))) && c < 0x80 {
			b.WriteByte(c)
		} else {
			b.WriteByte('?')
		}
	}
	return b.String()
}
