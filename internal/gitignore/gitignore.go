// Package gitignore matches paths against the rules of .gitignore files, as git does, and reads which
// files git tracks from its index. It opens no files. Its time and memory depend only on the lengths
// of what it is given, which may be hostile.
package gitignore

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Rules are the rules of one file. Their paths are relative to its directory.
type Rules struct {
	rules  []rule
	memory int
}

type rule struct {
	re      *regexp.Regexp
	negated bool // includes again what an earlier rule excludes
	dirs    bool // matches only directories
	base    bool // matches the last name at any depth
}

const (
	// MaxFile bounds a file of rules, in bytes; the rest is not read.
	MaxFile  = 256 << 10
	maxRules = 4_096
	maxRule  = 4_096 // bytes of a rule; longer ones match nothing
	maxWild  = 64    // wildcards of a rule; each may cost time at every byte of a path. Rules with more match nothing
)

// Parse reads the text of a .gitignore file. It skips rules that git can't match with either.
func Parse(text string) *Rules {
	text = text[:min(len(text), MaxFile)]
	r := &Rules{}
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if len(r.rules) == maxRules {
			break
		}
		line = trimBlanks(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' || len(line) > maxRule || wildcards(line) > maxWild {
			continue
		}
		one := rule{}
		if line, one.negated = strings.CutPrefix(line, "!"); line == "" {
			continue
		}
		line, one.dirs = strings.CutSuffix(line, "/")
		one.base = !strings.Contains(line, "/")
		expr, ok := translate(strings.TrimPrefix(line, "/"))
		if !ok {
			continue
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			continue
		}
		one.re = re
		r.rules = append(r.rules, one)
		r.memory += perRule + perByte*len(expr)
	}
	return r
}

func wildcards(line string) int {
	return strings.Count(line, "*") + strings.Count(line, "?") + strings.Count(line, "[")
}

// trimBlanks removes blanks at the end, up to one that a backslash escapes.
func trimBlanks(line string) string {
	for strings.HasSuffix(line, " ") {
		short := strings.TrimSuffix(line, " ")
		if slashes := len(short) - len(strings.TrimRight(short, `\`)); slashes%2 == 1 {
			break
		}
		line = short
	}
	return line
}

// Match reports whether the last rule that matches a path ignores it; known is false if none does.
// The path is relative to the directory of the rules.
func (r *Rules) Match(path string, dir bool) (ignored, known bool) {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for i := len(r.rules) - 1; i >= 0; i-- {
		one := &r.rules[i]
		if one.dirs && !dir {
			continue
		}
		text := path
		if one.base {
			text = base
		}
		if one.re.MatchString(text) {
			return !one.negated, true
		}
	}
	return false, false
}

// Len returns the number of rules, which is what a Match costs.
func (r *Rules) Len() int { return len(r.rules) }

// Bytes that a compiled rule takes at most, and more for each byte of its expression.
const (
	perRule = 1_100
	perByte = 60
)

// Memory returns the bytes that the rules take at most: up to a hundred for each byte of their text.
func (r *Rules) Memory() int { return r.memory }

// translate returns a rule as a regular expression; ok is false if git matches nothing with it. As
// in git, "**" also stands for directories directly after the literal beginning of a rule.
func translate(glob string) (expr string, ok bool) {
	literal := len(glob)
	if i := strings.IndexAny(glob, `*?[\`); i >= 0 {
		literal = i
	}
	var out strings.Builder
	out.WriteString(`(?s)\A` + regexp.QuoteMeta(glob[:literal]))
	for rest := glob[literal:]; rest != ""; {
		switch rest[0] {
		case '*':
			stars := len(rest) - len(strings.TrimLeft(rest, "*"))
			at := len(glob) - len(rest)
			begins, after := at == literal || glob[at-1] == '/', rest[stars:]
			switch {
			case stars == 1 || !begins:
				out.WriteString(`[^/]*`)
			case strings.HasPrefix(after, "/"):
				out.WriteString(`(?:.*/)?`)
				after = after[1:]
			case after == "" || strings.HasPrefix(after, `\/`):
				out.WriteString(`.*`)
			default:
				out.WriteString(`[^/]*`)
			}
			rest = after
			continue
		case '?':
			out.WriteString(`[^/]`)
		case '[':
			n, expr := class(rest)
			if n == 0 {
				return "", false
			}
			out.WriteString(expr)
			rest = rest[n:]
			continue
		case '\\':
			if rest = rest[1:]; rest == "" {
				return "", false
			}
			fallthrough
		default:
			r, size := utf8.DecodeRuneInString(rest)
			out.WriteString(regexp.QuoteMeta(string(r)))
			rest = rest[size:]
			continue
		}
		rest = rest[1:]
	}
	out.WriteString(`\z`)
	return out.String(), true
}

// class translates a class such as [!a-z]. It returns the length of the class, 0 if it isn't one.
func class(s string) (n int, expr string) {
	var set [256]bool
	i := 1
	negated := i < len(s) && (s[i] == '!' || s[i] == '^')
	if negated {
		i++
	}
	for first := true; ; first = false {
		if i >= len(s) {
			return 0, ""
		}
		if s[i] == ']' && !first {
			break
		}
		if strings.HasPrefix(s[i:], "[:") {
			name, _, closed := strings.Cut(s[i+len("[:"):], ":]")
			if closed && !strings.Contains(name, "[") {
				if !named(&set, name) {
					return 0, ""
				}
				i += len("[::]") + len(name)
				continue
			}
		}
		from, next, ok := member(s, i)
		if !ok {
			return 0, ""
		}
		to := from
		if next+1 < len(s) && s[next] == '-' && s[next+1] != ']' {
			if to, next, ok = member(s, next+1); !ok {
				return 0, ""
			}
		}
		for c := int(from); c <= int(to); c++ {
			set[c] = true
		}
		i = next
	}
	set['/'] = negated // which it then isn't, as every class
	var out strings.Builder
	for c := 0; c < 0x80; c++ {
		if set[c] == negated {
			continue
		}
		last := c
		for last+1 < 0x80 && set[last+1] != negated {
			last++
		}
		fmt.Fprintf(&out, `\x%02x-\x%02x`, c, last)
		c = last
	}
	if negated {
		out.WriteString(`\x{80}-\x{10ffff}`)
	}
	if out.Len() == 0 {
		return 0, ""
	}
	return i + 1, "[" + out.String() + "]"
}

func member(s string, i int) (c byte, next int, ok bool) {
	if s[i] == '\\' {
		i++
	}
	if i >= len(s) {
		return 0, 0, false
	}
	return s[i], i + 1, true
}

// named adds a class of POSIX such as [:alpha:].
func named(set *[256]bool, name string) bool {
	const lower, upper, digit = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	graph, printable := strings.Builder{}, strings.Builder{}
	for c := byte(' '); c <= '~'; c++ {
		printable.WriteByte(c)
		if c != ' ' {
			graph.WriteByte(c)
		}
	}
	control := "\x7f"
	for c := range byte(' ') {
		control += string(rune(c))
	}
	members, ok := map[string]string{
		"alnum": lower + upper + digit, "alpha": lower + upper, "blank": " \t", "cntrl": control, "digit": digit, "graph": graph.String(), "lower": lower,
		"print": printable.String(), "punct": strings.Map(punctuation, graph.String()), "space": " \t\n\v\f\r", "upper": upper, "xdigit": digit + "abcdefABCDEF",
	}[name]
	for _, c := range []byte(members) {
		set[c] = true
	}
	return ok
}

func punctuation(c rune) rune {
	if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return -1
	}
	return c
}
