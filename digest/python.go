package digest

import (
	"path"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// pyproject is what wisbox reads of a pyproject.toml.
type pyproject struct {
	Tool    map[string]any `toml:"tool"`
	Project struct {
		Name string `toml:"name"`
	} `toml:"project"`
	Build map[string]any `toml:"build-system"`
}

func pythonCommands(s *survey, dir string) []Command {
	source := s.first(dir, "pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "tox.ini", "pytest.ini")
	tests := s.pythonTests(dir)
	if source == "" && (dir != "." || tests == noTests) {
		return nil
	}
	var project pyproject
	text := s.read(s.first(dir, "pyproject.toml"))
	if toml.Unmarshal([]byte(text), &project) != nil {
		project, text = pyproject{}, ""
	}
	p := python{s: s, dir: dir, source: source, project: project, text: text + s.read(s.first(dir, "setup.cfg")) + s.read(s.first(dir, "tox.ini"))}
	return append(p.test(tests), p.lint()...)
}

type testStyle int

const (
	noTests testStyle = iota
	unitTests
	pytestTests
)

// pythonTests tells from the test files how they are written.
func (s *survey) pythonTests(dir string) testStyle {
	style, looked := noTests, 0
	for _, f := range s.below(dir) {
		base := path.Base(f.path)
		if !strings.HasSuffix(base, ".py") || !strings.HasPrefix(base, "test_") && !strings.HasSuffix(base, "_test.py") {
			continue
		}
		text := s.read(f.path)
		if looked++; looked > 20 {
			break
		}
		if !strings.Contains(text, "TestCase") {
			if strings.Contains(text, "def test_") {
				return pytestTests
			}
			continue
		}
		if s.discovered(dir, f.path) {
			style = unitTests
		}
	}
	return style
}

// discovered says that unittest, begun in dir or its tests directory, finds the
// file: it goes down into packages only, and fails where it finds nothing.
func (s *survey) discovered(dir, file string) bool {
	for at := path.Dir(file); at != dir && at != path.Join(dir, "tests"); at = path.Dir(at) {
		if !s.has(at + "/__init__.py") {
			return false
		}
	}
	return true
}

type python struct {
	s           *survey
	dir, source string
	project     pyproject
	text        string
}

func (p python) uses(tool string) bool {
	_, ok := p.project.Tool[tool]
	return ok
}

func (p python) test(style testStyle) []Command {
	if style == noTests {
		return nil
	}
	where := p.source
	if where == "" {
		where = "tests"
	}
	if style == pytestTests || p.uses("pytest") || strings.Contains(p.text, "[tool:pytest]") || p.s.first(p.dir, "pytest.ini", "conftest.py") != "" {
		return []Command{p.command("test", p.withPath("python3 -m pytest"), where, "python3:pytest")}
	}
	line := "python3 -m unittest discover"
	if tests := path.Join(p.dir, "tests"); p.s.dirs[tests] {
		line += " -s tests"
		if p.s.has(tests + "/__init__.py") {
			line += " -t ."
		}
	}
	return []Command{p.command("test", p.withPath(line), where)}
}

// withPath makes sources under src/ importable without installing them.
func (p python) withPath(line string) string {
	if p.s.dirs[path.Join(p.dir, "src")] {
		return "PYTHONPATH=src " + line
	}
	return line
}

func (p python) lint() []Command {
	var out []Command
	if p.uses("ruff") || p.s.first(p.dir, "ruff.toml", ".ruff.toml") != "" {
		out = append(out, p.command("lint", "ruff check .", p.source, "ruff"))
	}
	if p.uses("mypy") || p.s.first(p.dir, "mypy.ini") != "" || strings.Contains(p.text, "[mypy]") {
		out = append(out, p.command("lint", "python3 -m mypy .", p.source, "python3:mypy"))
	}
	if p.uses("pyright") || p.s.first(p.dir, "pyrightconfig.json") != "" {
		out = append(out, p.command("lint", "pyright", p.source, "pyright"))
	}
	if p.uses("black") {
		out = append(out, p.command("lint", "black --check .", p.source, "black"))
	}
	if p.s.first(p.dir, ".flake8") != "" || strings.Contains(p.text, "[flake8]") {
		out = append(out, p.command("lint", "python3 -m flake8", p.source, "python3:flake8"))
	}
	return out
}

func (p python) command(purpose, line, source string, needs ...string) Command {
	return Command{Purpose: purpose, Line: in(p.dir, line), Source: source, Needs: append([]string{"python3"}, needs...)}
}
