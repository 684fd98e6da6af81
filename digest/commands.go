package digest

import (
	"path"
	"slices"
	"strings"
)

// commands finds what builds, tests and lints the workspace. Each detector names
// only what the files say can work: a target that is there, a tool that is set up.
func commands(s *survey) []Command {
	var out []Command
	for _, dir := range projectDirs(s) {
		for _, detect := range []func(*survey, string) []Command{makeCommands, pythonCommands, goCommands, nodeCommands, otherCommands} {
			out = append(out, detect(s, dir)...)
		}
	}
	seen := map[string]bool{}
	out = slices.DeleteFunc(out, func(c Command) bool {
		twice := seen[c.Line]
		seen[c.Line] = true
		return twice
	})
	slices.SortStableFunc(out, func(a, b Command) int { return order(a.Purpose) - order(b.Purpose) })
	out = out[:min(len(out), maxCommands)]
	markCI(s, out)
	return out
}

var purposes = []string{"build", "test", "lint", "format"}

func order(purpose string) int { return slices.Index(purposes, purpose) }

const maxProjects = 12

// projectDirs are the top and the directories, at most three levels down, that
// have a manifest of their own.
func projectDirs(s *survey) []string {
	dirs := []string{"."}
	for _, f := range s.files {
		dir, name := path.Split(f.path)
		dir = strings.TrimSuffix(dir, "/")
		if dir != "" && manifest(name) && strings.Count(dir, "/") < 3 && plain(dir) && !strings.HasPrefix(dir, "-") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs[:min(len(dirs), maxProjects)]
}

func manifest(name string) bool {
	return slices.Contains([]string{"Makefile", "makefile", "GNUmakefile", "pyproject.toml", "package.json", "go.mod", "Cargo.toml", "CMakeLists.txt"}, name)
}

// in is a command as it is given from the top directory.
func in(dir, line string) string {
	if dir == "." {
		return line
	}
	return "(cd " + dir + " && " + line + ")"
}

// markCI notes which commands a CI file has, too.
func markCI(s *survey, list []Command) {
	var text strings.Builder
	for _, f := range s.files {
		if ciFile(f.path) {
			text.WriteString(s.read(f.path))
		}
	}
	for i := range list {
		list[i].CI = strings.Contains(text.String(), list[i].Line)
	}
}

func ciFile(p string) bool {
	ext := path.Ext(p)
	return (ext == ".yml" || ext == ".yaml") && (path.Dir(p) == ".github/workflows" || p == ".gitlab-ci.yml" || p == ".circleci/config.yml" || p == "azure-pipelines.yml") ||
		path.Dir(p) == ".ci" || p == "Jenkinsfile"
}

// purposeOf tells what a target or script of that name is for, "" for what a
// reader shouldn't run without thinking.
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
