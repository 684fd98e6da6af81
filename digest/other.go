package digest

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

func goCommands(s *survey, dir string) []Command {
	mod := s.first(dir, "go.mod")
	if mod == "" {
		return nil
	}
	tests, sources := false, false
	for _, f := range s.below(dir) {
		tests = tests || strings.HasSuffix(f.path, "_test.go")
		sources = sources || strings.HasSuffix(f.path, ".go")
	}
	if !sources {
		return nil
	}
	line := "go"
	if dir != "." {
		line = "go -C " + dir
	}
	out := []Command{
		{Purpose: "build", Line: line + " build ./...", Source: mod, Needs: []string{"go"}},
		{Purpose: "lint", Line: line + " vet ./...", Source: mod, Needs: []string{"go"}},
	}
	if tests {
		out = append(out, Command{Purpose: "test", Line: line + " test ./...", Source: mod, Needs: []string{"go"}})
	}
	if config := s.first(dir, ".golangci.yml", ".golangci.yaml", ".golangci.toml"); config != "" {
		out = append(out, Command{Purpose: "lint", Line: in(dir, "golangci-lint run"), Source: config, Needs: []string{"golangci-lint"}})
	}
	return out
}

func nodeCommands(s *survey, dir string) []Command {
	name := s.first(dir, "package.json")
	if name == "" {
		return nil
	}
	var p struct {
		Scripts map[string]string `json:"scripts"`
	}
	if json.Unmarshal([]byte(s.read(name)), &p) != nil {
		return nil
	}
	manager := nodeManager(s, dir)
	var out []Command
	for script, body := range p.Scripts {
		purpose := purposeOf(script)
		if purpose == "" || strings.Contains(body, "no test specified") {
			continue
		}
		line := manager + " run " + script
		if script == "test" {
			line = manager + " test"
		}
		out = append(out, Command{Purpose: purpose, Line: in(dir, line), Source: name, Needs: s.nodeNeeds(dir, manager, body)})
	}
	slices.SortFunc(out, func(a, b Command) int { return strings.Compare(a.Line, b.Line) })
	return out
}

func nodeManager(s *survey, dir string) string {
	for _, m := range []struct{ lock, name string }{{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lockb", "bun"}} {
		if s.first(dir, m.lock) != "" {
			return m.name
		}
	}
	return "npm"
}

// nodeNeeds are the programs that a script calls first. What the packages
// installed beside it bring is left out.
func (s *survey) nodeNeeds(dir, manager, body string) []string {
	needs := []string{manager, "node"}
	for _, part := range separators.Split(body, -1) {
		for _, w := range calledBy(strings.Fields(part)) {
			if w != manager && !s.isFile(path.Join(dir, "node_modules/.bin", w)) {
				needs = append(needs, w)
			}
		}
	}
	slices.Sort(needs)
	return slices.Compact(needs)
}

func otherCommands(s *survey, dir string) []Command {
	var out []Command
	add := func(manifest, purpose, line string, needs ...string) {
		if name := s.first(dir, manifest); name != "" {
			out = append(out, Command{Purpose: purpose, Line: in(dir, line), Source: name, Needs: needs})
		}
	}
	add("Cargo.toml", "build", "cargo build", "cargo")
	add("Cargo.toml", "test", "cargo test", "cargo")
	if dir == "." || !s.has("CMakeLists.txt") { // those below belong to the one on top
		add("CMakeLists.txt", "build", "cmake -B build && cmake --build build", "cmake", "make")
	}
	add("tox.ini", "test", "tox", "tox")
	add("noxfile.py", "test", "nox", "nox")
	return out
}
