package digest

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
)

func (p *part) goCommands() []Command {
	mod := p.own("go.mod")
	if mod == "" {
		return nil
	}
	tests, sources := false, false
	for _, f := range p.below(p.dir) {
		if tests || p.b.Step(1) != nil {
			break
		}
		tests = strings.HasSuffix(f.path, "_test.go")
		sources = sources || strings.HasSuffix(f.path, ".go")
	}
	if !sources {
		return nil
	}
	out := []Command{
		{Purpose: "build", Line: "go build ./...", Source: mod, Needs: []string{"go"}},
		{Purpose: "lint", Line: "go vet ./...", Source: mod, Needs: []string{"go"}},
	}
	if tests {
		out = append(out, Command{Purpose: "test", Line: "go test ./...", Source: mod, Needs: []string{"go"}})
	}
	if config := p.own(".golangci.yml", ".golangci.yaml", ".golangci.toml"); config != "" {
		out = append(out, Command{Purpose: "lint", Line: "golangci-lint run", Source: config, Needs: []string{"golangci-lint"}})
	}
	return out
}

func (p *part) nodeCommands() []Command {
	name := p.own("package.json")
	if name == "" {
		return nil
	}
	manager := p.nodeManager()
	var out []Command
	for script, body := range nodeScripts(p.b, p.read(p.b, name)) {
		if strings.Contains(body, "no test specified") {
			continue
		}
		line := manager + " run " + script
		if script == "test" {
			line = manager + " test"
		}
		out = append(out, Command{Purpose: purposeOf(script), Line: line, Source: name, Needs: p.nodeNeeds(manager, body)})
	}
	slices.SortFunc(out, func(a, b Command) int { return strings.Compare(a.Line, b.Line) })
	return out
}

// jsonBytes is the maximum memory for a byte of JSON.
const jsonBytes = 16

// nodeScripts returns the scripts of a package.json whose names show their purpose.
func nodeScripts(b *budget.Budget, text string) map[string]string {
	var p struct {
		Scripts map[string]string `json:"scripts"`
	}
	if b.Hold(jsonBytes*len(text)) != nil || json.Unmarshal([]byte(text), &p) != nil {
		return nil
	}
	for script := range p.Scripts {
		if purposeOf(script) == "" {
			delete(p.Scripts, script)
		}
	}
	return p.Scripts
}

func (p *part) nodeManager() string {
	for _, m := range []struct{ lock, name string }{{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lockb", "bun"}} {
		if p.own(m.lock) != "" {
			return m.name
		}
	}
	return "npm"
}

// nodeNeeds returns the first programs that a script calls, without those of installed packages.
func (p *part) nodeNeeds(manager, body string) []string {
	out := needs{manager, "node"}
	asked := map[string]bool{}
	for _, w := range calledIn(p.b, body) {
		if asked[w] || len(asked) == maxNeeds {
			continue
		}
		asked[w] = true
		if !p.isFile(path.Join(p.dir, "node_modules/.bin", w)) {
			out.add(w)
		}
	}
	return out.sorted()
}

func (p *part) otherCommands() []Command {
	var out []Command
	add := func(manifest, purpose, line string, needs ...string) {
		if name := p.own(manifest); name != "" {
			out = append(out, Command{Purpose: purpose, Line: line, Source: name, Needs: needs})
		}
	}
	add("Cargo.toml", "build", "cargo build", "cargo")
	add("Cargo.toml", "test", "cargo test", "cargo")
	if p.dir == "." || !p.above("CMakeLists.txt") { // projects below belong to the one above
		add("CMakeLists.txt", "build", "cmake -B build && cmake --build build", "cmake", "make")
	}
	add("tox.ini", "test", "tox", "tox")
	add("noxfile.py", "test", "nox", "nox")
	return out
}

// above reports whether a directory above the project's has a file of that name.
func (p *part) above(name string) bool {
	for dir := p.dir; dir != "."; {
		if dir = path.Dir(dir); p.first(dir, name) != "" {
			return true
		}
	}
	return false
}
