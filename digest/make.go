package digest

import (
	"regexp"
	"slices"
	"strings"
)

var (
	ruleLine   = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_.\- ]*?)\s*::?(?:\s+([^=].*)?)?$`)
	assignLine = regexp.MustCompile(`^(?:export\s+|override\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*(?:[:?+]|::)?=\s*(.*)$`)
	variable   = regexp.MustCompile(`\$[({]([A-Za-z_][A-Za-z0-9_]*)[)}]`)
)

// makefile is what can be told of a Makefile without running make.
type makefile struct {
	order   []string
	recipes map[string][]string
	needs   map[string][]string // prerequisites
	vars    map[string]string
}

func parseMake(text string) *makefile {
	m := &makefile{recipes: map[string][]string{}, needs: map[string][]string{}, vars: map[string]string{"CC": "cc", "CXX": "g++", "MAKE": "make"}}
	var current []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimRight(line, "\r\n")
		if recipe, ok := strings.CutPrefix(line, "\t"); ok {
			for _, t := range current {
				m.recipes[t] = append(m.recipes[t], recipe)
			}
			continue
		}
		line, _, _ = strings.Cut(line, "#")
		if a := assignLine.FindStringSubmatch(line); a != nil {
			m.vars[a[1]] = strings.TrimSpace(a[2])
			continue
		}
		if r := ruleLine.FindStringSubmatch(line); r != nil {
			current = m.rule(strings.Fields(r[1]), r[2])
		}
	}
	return m
}

func (m *makefile) rule(targets []string, rest string) []string {
	prerequisites, recipe, inline := strings.Cut(rest, ";")
	for _, t := range targets {
		if _, known := m.recipes[t]; !known {
			m.order = append(m.order, t)
			m.recipes[t] = nil
		}
		m.needs[t] = append(m.needs[t], strings.Fields(prerequisites)...)
		if inline {
			m.recipes[t] = append(m.recipes[t], recipe)
		}
	}
	return targets
}

func makeCommands(s *survey, dir string) []Command {
	name := s.first(dir, "GNUmakefile", "makefile", "Makefile")
	if name == "" {
		return nil
	}
	m := parseMake(s.read(name))
	line := "make"
	if dir != "." {
		line = "make -C " + dir
	}
	var out []Command
	for _, t := range m.order {
		if purpose := purposeOf(t); purpose != "" {
			out = append(out, Command{Purpose: purpose, Line: line + " " + t, Source: name, Needs: m.programs(t)})
		}
	}
	if len(m.order) > 0 && !slices.ContainsFunc(out, func(c Command) bool { return c.Purpose == "build" }) && s.builds(dir) {
		out = append(out, Command{Purpose: "build", Line: line, Source: name, Needs: m.programs(m.order[0])})
	}
	return out
}

// builds says that dir holds sources that a plain make compiles.
func (s *survey) builds(dir string) bool {
	for _, l := range languages(s.below(dir)) {
		if l.Name == "C" || l.Name == "C++" {
			return true
		}
	}
	return false
}

// shellWords need no program of their own.
var shellWords = []string{
	"", "cd", "echo", "printf", "test", "[", "true", "false", "if", "then", "else", "fi", "for", "do", "done", "set", "export", "mkdir", "rm", "cp", "mv",
	"touch", "ln", "cat", "ls", "install", "sed", "grep", "find", "sh", "bash", "env", "exit", "sort", "head", "tail", "xargs", "chmod", "!", "{", "}", "(",
}

// programs are what the recipes of target and of what it needs call first.
func (m *makefile) programs(target string) []string {
	out, todo, seen := []string{"make"}, []string{target}, map[string]bool{}
	for len(todo) > 0 && len(seen) < 50 {
		t := todo[0]
		todo = todo[1:]
		if seen[t] {
			continue
		}
		seen[t] = true
		todo = append(todo, strings.Fields(m.expand(strings.Join(m.needs[t], " ")))...)
		for _, line := range m.recipes[t] {
			out = append(out, m.called(line)...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m *makefile) expand(text string) string {
	for range 5 {
		text = variable.ReplaceAllStringFunc(text, func(v string) string { return m.vars[v[2:len(v)-1]] })
	}
	return text
}

var separators = regexp.MustCompile(`&&|\|\||[;|]`)

func (m *makefile) called(recipe string) (out []string) {
	for _, part := range separators.Split(m.expand(strings.TrimLeft(strings.TrimSpace(recipe), "@-+ ")), -1) {
		out = append(out, calledBy(strings.Fields(part))...)
	}
	return out
}

// calledBy is the program of a simple command, and the module that Python runs.
func calledBy(words []string) []string {
	for len(words) > 0 && strings.Contains(words[0], "=") {
		if _, inner, ok := strings.Cut(words[0], "$("); ok { // what an assignment takes the output of
			words[0] = strings.TrimPrefix(inner, "(")
			break
		}
		words = words[1:]
	}
	if len(words) == 0 || strings.Contains(words[0], "/") || !plain(words[0]) || strings.HasPrefix(words[0], ".") || slices.Contains(shellWords, words[0]) {
		return nil
	}
	if strings.HasPrefix(words[0], "python") && len(words) > 2 && words[1] == "-m" && plain(words[2]) {
		module, _, _ := strings.Cut(words[2], ".")
		return []string{words[0], "python3:" + module}
	}
	return words[:1]
}
