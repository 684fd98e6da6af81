package digest

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

func (p *part) pythonCommands() []Command {
	source := p.own("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt", "tox.ini", "pytest.ini")
	tests := p.pythonTests(source != "")
	if source == "" && tests == noTests {
		return nil
	}
	py := python{p: p, source: source, tools: toolTables(p.text("pyproject.toml"))}
	for _, name := range []string{"pyproject.toml", "setup.cfg", "tox.ini"} {
		py.note(p.text(name))
	}
	return append(py.test(tests), py.lint()...)
}

var pythonTools = []string{"pytest", "ruff", "mypy", "pyright", "black"}

var toolTable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\s*\[+\s*tool\s*\.\s*"?([A-Za-z0-9_-]{1,64})`) })

// toolTables returns the NAMEs of the tables [tool.NAME] of a pyproject.toml. It reads line by line, because a TOML
// parser's memory is unbounded for hostile text.
func toolTables(text string) map[string]bool {
	tables := map[string]bool{}
	quoted := "" // end mark of a multi-line string
	for line := range strings.Lines(text) {
		if name := toolTable().FindStringSubmatch(line); name != nil && quoted == "" && slices.Contains(pythonTools, name[1]) {
			tables[name[1]] = true
		}
		quoted = quotedAfter(line, quoted)
	}
	return tables
}

// quotedAfter returns the end mark of the multi-line string that is open at the end of a line, or "".
func quotedAfter(line, quoted string) string {
	for _, mark := range []string{`"""`, "'''"} {
		if quoted != "" && quoted != mark || strings.Count(line, mark)%2 == 0 {
			continue
		}
		if quoted == "" {
			return mark
		}
		return ""
	}
	return quoted
}

type testStyle int

const (
	noTests testStyle = iota
	unitTests
	pytestTests
)

const maxTestFiles = 20 // that are read

// pythonTests determines the style of the test files. Test files of projects below belong to these, unless the
// directory declares its own project.
func (p *part) pythonTests(own bool) testStyle {
	style, looked := noTests, 0
	for _, f := range p.below(p.dir) {
		if p.b.Step(1) != nil {
			break
		}
		if !pythonTest(path.Base(f.path)) || !own && p.elsewhere(f.path) {
			continue
		}
		if looked++; looked > maxTestFiles {
			break
		}
		text := p.read(p.b, f.path)
		if !strings.Contains(text, "TestCase") {
			if strings.Contains(text, "def test") { // pytest's default prefix has no underscore
				return pytestTests
			}
			continue
		}
		if p.discovered(f.path) {
			style = unitTests
		}
	}
	return style
}

func pythonTest(base string) bool {
	return strings.HasSuffix(base, ".py") && (strings.HasPrefix(base, "test_") || strings.HasSuffix(base, "_test.py"))
}

// elsewhere reports whether a file is in a project below this one.
func (p *part) elsewhere(file string) bool {
	for _, dir := range p.projects {
		if dir != "." && dir != p.dir && strings.HasPrefix(file, dir+"/") && (p.dir == "." || strings.HasPrefix(dir, p.dir+"/")) {
			return true
		}
	}
	return false
}

// discovered reports whether unittest, started in the project's directory or its tests directory, finds the file: it
// descends only into packages, and fails if it finds nothing.
func (p *part) discovered(file string) bool {
	for at := path.Dir(file); at != p.dir && at != path.Join(p.dir, "tests"); at = path.Dir(at) {
		if p.b.Step(1) != nil || !p.has(at+"/__init__.py") {
			return false
		}
	}
	return true
}

type python struct {
	p      *part
	source string
	tools  map[string]bool // of pyproject.toml
	marks  []string        // that its configuration has
}

// note records the sections of a configuration file.
func (py *python) note(text string) {
	for _, mark := range []string{"[tool:pytest]", "[pytest]", "[mypy]", "[flake8]"} {
		if strings.Contains(text, mark) {
			py.marks = append(py.marks, mark)
		}
	}
}

func (py *python) uses(tool, mark string, files ...string) bool {
	if py.tools[tool] || len(files) > 0 && py.p.own(files...) != "" {
		return true
	}
	return slices.Contains(py.marks, mark)
}

func (py *python) test(style testStyle) []Command {
	// Its configuration may name other files and functions than those that pythonTests knows.
	configured := py.uses("pytest", "[tool:pytest]", "pytest.ini") || py.uses("", "[pytest]")
	if style == noTests && !configured {
		return nil
	}
	where := py.source
	if where == "" {
		where = path.Join(py.p.dir, "tests")
	}
	if style == pytestTests || configured || py.p.own("conftest.py") != "" {
		return []Command{py.command("test", py.withPath("python3 -m pytest"), where, "python3:pytest")}
	}
	line := "python3 -m unittest discover"
	if py.p.hasDir("tests") {
		line += " -s tests"
		if py.p.own("tests/__init__.py") != "" {
			line += " -t ."
		}
	}
	return []Command{py.command("test", py.withPath(line), where)}
}

// withPath makes sources under src/ importable without installing them.
func (py *python) withPath(line string) string {
	if py.p.hasDir("src") {
		return "PYTHONPATH=src " + line
	}
	return line
}

func (py *python) lint() []Command {
	var out []Command
	add := func(line, needs string) { out = append(out, py.command("lint", line, py.source, needs)) }
	if py.uses("ruff", "", "ruff.toml", ".ruff.toml") {
		add("ruff check .", "ruff")
	}
	if py.uses("mypy", "[mypy]", "mypy.ini") {
		add("python3 -m mypy .", "python3:mypy")
	}
	if py.uses("pyright", "", "pyrightconfig.json") {
		add("pyright", "pyright")
	}
	if py.uses("black", "") {
		add("black --check .", "black")
	}
	if py.uses("", "[flake8]", ".flake8") {
		add("python3 -m flake8", "python3:flake8")
	}
	return out
}

func (py *python) command(purpose, line, source string, needs ...string) Command {
	return Command{Purpose: purpose, Line: line, Source: source, Needs: append([]string{"python3"}, needs...)}
}
