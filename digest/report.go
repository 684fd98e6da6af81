package digest

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Command is one way to build, test or check the workspace. It is run in the
// workspace's top directory by a shell.
type Command struct {
	Purpose string   `json:"purpose"` // build, test, lint, format
	Line    string   `json:"line"`
	Source  string   `json:"source"`          // the file that tells of it
	Needs   []string `json:"needs,omitempty"` // programs, and Python modules as "python3:NAME"
	CI      bool     `json:"ci,omitempty"`    // a CI file runs it too
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

// Report is what the files of a workspace tell. Paths and names are printable.
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

// Build looks at a workspace. It is bounded in time (5 s), entries (50,000) and
// depth, and says in a caveat when that cut it short.
func Build(ctx context.Context, fsys fs.FS) (*Report, error) {
	s, err := look(ctx, fsys)
	if err != nil {
		return nil, err
	}
	r := &Report{Files: len(s.files)}
	for _, f := range s.files {
		r.Bytes += f.size
	}
	r.Top, r.Areas, r.Languages = top(s), areas(s), languages(s.files)
	r.Commands = commands(s)
	r.Caveats = caveats(s, r)
	return r, nil
}

func top(s *survey) []string {
	var names []string
	for _, f := range s.files {
		if !strings.Contains(f.path, "/") && notable(f.path) && len(names) < maxTop {
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
	byDir := map[string][]found{}
	for d := range s.dirs {
		if !strings.Contains(d, "/") {
			byDir[d] = nil
		}
	}
	for _, f := range s.files {
		if dir, _, ok := strings.Cut(f.path, "/"); ok {
			byDir[dir] = append(byDir[dir], f)
		}
	}
	var out []Area
	for dir, files := range byDir {
		a := Area{Path: shown(dir), Files: len(files)}
		if l := languages(files); len(l) > 0 {
			a.What = l[0].Name
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Area) int { return strings.Compare(a.Path, b.Path) })
	return out[:min(len(out), maxAreas)]
}

var extensions = map[string]string{
	".py": "Python", ".pyi": "Python", ".go": "Go", ".js": "JavaScript", ".mjs": "JavaScript", ".cjs": "JavaScript", ".jsx": "JavaScript",
	".ts": "TypeScript", ".tsx": "TypeScript", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++", ".cxx": "C++", ".rs": "Rust",
	".java": "Java", ".kt": "Kotlin", ".rb": "Ruby", ".php": "PHP", ".sh": "Shell", ".bash": "Shell", ".lisp": "Lisp", ".cl": "Lisp", ".asd": "Lisp",
	".pl": "Perl", ".lua": "Lua", ".swift": "Swift", ".scala": "Scala", ".hs": "Haskell", ".ml": "OCaml", ".ex": "Elixir", ".exs": "Elixir",
	".sql": "SQL", ".r": "R", ".jl": "Julia", ".zig": "Zig", ".cs": "C#", ".html": "HTML", ".css": "CSS", ".ipynb": "Jupyter",
}

func languages(files []found) []Language {
	byName := map[string]*Language{}
	for _, f := range files {
		name := extensions[strings.ToLower(path.Ext(f.path))]
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

// plain names are repeated as they are.
func plain(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._-+@/", c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 200
}

// shown is a name for a reader: what isn't plain is replaced.
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
