package digest

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
)

// commands finds the commands that build, test and lint the workspace.
func commands(s *survey) []Command {
	var out []Command
	s.projects = projectDirs(s)
	for _, dir := range s.projects {
		out = append(out, s.detect(dir)...)
	}
	seen := map[string]bool{}
	out = slices.DeleteFunc(out, func(c Command) bool {
		twice := seen[c.Line]
		seen[c.Line] = true
		return twice || s.b.Out(c.size()) != nil
	})
	slices.SortStableFunc(out, func(a, b Command) int { return order(a.Purpose) - order(b.Purpose) })
	out = out[:min(len(out), maxCommands)]
	s.markCI(out)
	return out
}

var purposes = []string{"build", "test", "lint", "format"}

func order(purpose string) int { return slices.Index(purposes, purpose) }

const (
	maxProjects = 12
	maxLevels   = 4 // maximum number of directories above a project's files
)

// projectDirs returns the top and, nearest to it first, the directories with their own project: those with a manifest,
// or, if the top contains only directories, e.g. mounted ones, each of these.
func projectDirs(s *survey) []string {
	known := map[string]bool{}
	bare := true
	for _, f := range s.files {
		if s.b.Step(1) != nil {
			break
		}
		dir, name := path.Split(f.path)
		dir = strings.TrimSuffix(dir, "/")
		switch {
		case dir == "":
			bare = bare && !manifest(name) && languageOf(name) == ""
		case manifest(name) && strings.Count(dir, "/") < maxLevels && named(dir):
			known[dir] = true
		}
	}
	if bare {
		for dir := range s.dirs {
			if mounted(s, dir) {
				known[dir] = true
			}
		}
	}
	dirs := make([]string, 0, len(known))
	for dir := range known {
		dirs = append(dirs, dir)
	}
	slices.SortFunc(dirs, func(a, b string) int {
		return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), strings.Compare(a, b))
	})
	s.more = max(0, len(dirs)-maxProjects)
	return append([]string{"."}, dirs[:len(dirs)-s.more]...)
}

// named reports whether a directory's name can appear unquoted in a command, and the directory is neither hidden nor
// test data.
func named(dir string) bool {
	for part := range strings.SplitSeq(dir, "/") {
		if part == "testdata" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") {
			return false
		}
	}
	return plain(dir) && !strings.HasPrefix(dir, "-")
}

// mounted reports whether a directory of the top may be a project without a manifest: it is neither a Python package
// nor the tests of its siblings.
func mounted(s *survey, dir string) bool {
	return !strings.Contains(dir, "/") && named(dir) && dir != "test" && dir != "tests" && !s.has(dir+"/__init__.py")
}

var manifests = []string{
	"Makefile", "makefile", "GNUmakefile", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini", "noxfile.py",
	"pytest.ini",
	"package.json", "go.mod", "Cargo.toml", "CMakeLists.txt",
}

func manifest(name string) bool { return slices.Contains(manifests, name) }

const maxCIFiles = 20

// markCI marks the commands that a CI file of their project, or of the workspace, runs too.
func (s *survey) markCI(list []Command) {
	read := 0
	for _, dir := range s.projects {
		for _, f := range s.below(dir) {
			if s.b.Step(1) != nil || read == maxCIFiles {
				return
			}
			if ciFile(strings.TrimPrefix(f.path, dir+"/")) {
				read++
				s.markFrom(dir, f.path, list)
			}
		}
	}
}

func (s *survey) markFrom(dir, file string, list []Command) {
	b := s.b.Part(budget.Limits{})
	defer b.Close()
	text := s.read(b, file)
	for i, c := range list {
		if b.Step(1+len(text)/stepBytes) != nil {
			return
		}
		list[i].CI = c.CI || strings.Contains(text, c.Line) || c.dir == dir && strings.Contains(text, c.local)
	}
}

func ciFile(p string) bool {
	ext := path.Ext(p)
	return (ext == ".yml" || ext == ".yaml") && (path.Dir(p) == ".github/workflows" || p == ".gitlab-ci.yml" || p == ".circleci/config.yml" || p == "azure-pipelines.yml") ||
		path.Dir(p) == ".ci" || p == "Jenkinsfile"
}

// purposeOf returns the purpose of a target or script by its name, "" for those that may be dangerous to run.
func purposeOf(name string) string {
	switch name {
	case "test", "tests", "unit", "unittest", "test-unit", "unit-test", "test:unit":
		return "test"
	case "lint", "vet", "typecheck", "type-check", "check", "fmt-check", "format-check", "lint:check", "check-types":
		return "lint"
	case "build", "all", "compile":
		return "build"
	case "fmt", "format":
		return "format"
	}
	return ""
}
