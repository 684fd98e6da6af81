package digest

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/internal/budget"
)

var (
	ruleLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_.\- ]*?)\s*::?(?:\s+([^=].*)?)?$`)
	})
	assignLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:export\s+|override\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*(?:[:?+]|::)?=\s*(.*)$`)
	})
	variable = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$[({]([A-Za-z_][A-Za-z0-9_]*)[)}]`) })
)

// Limits on what the digest shows of one Makefile.
const (
	maxTargets  = 50      // followed from one target
	maxRecipe   = 200     // lines read of a target's recipe
	maxExpanded = 4 << 10 // bytes of a line after its variables are replaced
	maxNested   = 5       // variables in variables
)

// makefile is the content of a Makefile that can be read without running make.
type makefile struct {
	b     *budget.Budget
	first string           // the first target
	rules map[string][]int // indices of a target's rules in the list below
	all   []makeRule
	vars  map[string]string
}

// makeRule is one rule, for all of its targets.
type makeRule struct {
	needs  string // prerequisites
	recipe []string
}

func parseMake(b *budget.Budget, text string) *makefile {
	m := &makefile{b: b, rules: map[string][]int{}, vars: map[string]string{"CC": "cc", "CXX": "g++", "MAKE": "make"}}
	if b.Hold(len(text)) != nil {
		return m
	}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if b.Step(1+len(line)/stepBytes) != nil {
			break
		}
		m.line(strings.TrimRight(line, "\r\n"))
	}
	return m
}

func (m *makefile) line(line string) {
	if recipe, ok := strings.CutPrefix(line, "\t"); ok {
		if len(m.all) > 0 {
			m.add(&m.all[len(m.all)-1], recipe)
		}
		return
	}
	line, _, _ = strings.Cut(line, "#")
	if a := assignLine().FindStringSubmatch(line); a != nil {
		if m.b.Hold(entryBytes) == nil {
			m.vars[a[1]] = strings.TrimSpace(a[2])
		}
		return
	}
	if r := ruleLine().FindStringSubmatch(line); r != nil {
		m.rule(r[1], r[2])
	}
}

func (m *makefile) rule(targets, rest string) {
	prerequisites, recipe, inline := strings.Cut(rest, ";")
	r := makeRule{needs: prerequisites}
	if inline {
		m.add(&r, recipe)
	}
	m.all = append(m.all, r)
	for t := range strings.FieldsSeq(targets) {
		if m.b.Step(1) != nil || m.b.Hold(entryBytes) != nil {
			return
		}
		if m.first == "" {
			m.first = t
		}
		m.rules[t] = append(m.rules[t], len(m.all)-1)
	}
}

// add adds a line to a recipe, up to the maximum.
func (m *makefile) add(r *makeRule, recipe string) {
	if len(r.recipe) < maxRecipe && m.b.Hold(len(recipe)/8+16) == nil {
		r.recipe = append(r.recipe, recipe)
	}
}

func (p *part) makeCommands() []Command {
	name := p.own("GNUmakefile", "makefile", "Makefile")
	if name == "" {
		return nil
	}
	b := p.b.Part(budget.Limits{}) // frees the Makefile's memory when closed
	defer b.Close()
	m := parseMake(b, p.read(b, name))
	var targets []string
	for t := range m.rules {
		if purposeOf(t) != "" {
			targets = append(targets, t)
		}
	}
	slices.SortFunc(targets, func(a, b string) int { return cmp.Or(m.rules[a][0]-m.rules[b][0], strings.Compare(a, b)) })
	var out []Command
	for _, t := range targets {
		out = append(out, Command{Purpose: purposeOf(t), Line: "make " + t, Source: name, Needs: m.programs(t)})
	}
	if m.first != "" && !slices.ContainsFunc(out, func(c Command) bool { return c.Purpose == "build" }) && p.compiles() {
		out = append(out, Command{Purpose: "build", Line: "make", Source: name, Needs: m.programs(m.first)})
	}
	return out
}

// compiles reports whether the project has sources that a plain make compiles.
func (p *part) compiles() bool {
	for _, f := range p.below(p.dir) {
		if p.b.Step(1) != nil {
			break
		}
		if name := languageOf(f.path); name == "C" || name == "C++" {
			return true
		}
	}
	return false
}

// shellWords lists words that need no program.
var shellWords = []string{
	"", "cd", "echo", "printf", "test", "[", "true", "false", "if", "then", "else", "fi", "for", "do", "done", "set", "export", "mkdir", "rm", "cp", "mv",
	"touch", "ln", "cat", "ls", "install", "sed", "grep", "find", "sh", "bash", "env", "exit", "sort", "head", "tail", "xargs", "chmod", "!", "{", "}", "(",
}

// programs returns the first programs that the recipes of target and its prerequisites call.
func (m *makefile) programs(target string) []string {
	out, todo, seen := needs{"make"}, []string{target}, map[string]bool{}
	for len(todo) > 0 && len(seen) < maxTargets && m.b.Step(1) == nil {
		t := todo[0]
		todo = todo[1:]
		if seen[t] {
			continue
		}
		seen[t] = true
		todo = m.follow(t, &out, todo)
	}
	return out.sorted()
}

// follow adds the programs that the rules of a target call to out, and their prerequisites to todo.
func (m *makefile) follow(target string, out *needs, todo []string) []string {
	lines := 0
	for _, i := range m.rules[target] {
		if m.b.Step(1) != nil {
			break
		}
		for t := range strings.FieldsSeq(m.expand(m.all[i].needs)) {
			if len(todo) < maxTargets*2 {
				todo = append(todo, t)
			}
		}
		for _, line := range m.all[i].recipe {
			if lines++; lines <= maxRecipe {
				out.add(m.called(line)...)
			}
		}
	}
	return todo
}

// expand replaces variables, up to a maximum length and depth.
func (m *makefile) expand(text string) string {
	var b strings.Builder
	m.expandTo(&b, text, maxNested)
	return b.String()
}

func (m *makefile) expandTo(b *strings.Builder, text string, depth int) {
	for room(b) > 0 && text != "" && m.b.Step(1) == nil {
		at := variable().FindStringSubmatchIndex(text[:min(len(text), maxExpanded)])
		if at == nil || depth == 0 {
			b.WriteString(text[:min(len(text), room(b))])
			return
		}
		b.WriteString(text[:min(at[0], room(b))])
		m.expandTo(b, m.vars[text[at[2]:at[3]]], depth-1)
		text = text[at[1]:]
	}
}

func room(b *strings.Builder) int { return maxExpanded - b.Len() }

var separators = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`&&|\|\||[;|]`) })

func (m *makefile) called(recipe string) []string {
	return calledIn(m.b, m.expand(strings.TrimLeft(strings.TrimSpace(recipe), "@-+ ")))
}

// calledIn returns the programs that the simple commands of a line call.
func calledIn(b *budget.Budget, line string) (out []string) {
	line = line[:min(len(line), maxExpanded)]
	if b.Step(1+len(line)/8) != nil { // each byte may be a command
		return nil
	}
	for _, part := range separators().Split(line, -1) {
		out = append(out, calledBy(strings.Fields(part))...)
	}
	return out
}

// calledBy returns the program of a simple command, and the module that Python runs.
func calledBy(words []string) []string {
	for len(words) > 0 && strings.Contains(words[0], "=") {
		if _, inner, ok := strings.Cut(words[0], "$("); ok { // the command substitution of an assignment
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

// Limits of a command's needs.
const (
	maxNeeds    = 12
	maxNeedName = 64 // bytes
)

// needs lists the programs that a command needs, each once.
type needs []string

func (n *needs) add(names ...string) {
	for _, name := range names {
		if len(*n) < maxNeeds && len(name) <= maxNeedName && !slices.Contains(*n, name) {
			*n = append(*n, strings.Clone(name))
		}
	}
}

func (n needs) sorted() []string {
	slices.Sort(n)
	return n
}
