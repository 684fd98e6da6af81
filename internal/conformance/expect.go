package conformance

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// Answer is the outcome of one call, in the form for expectations. Exactly one of Refused, Result
// and Error is set.
type Answer struct {
	Refused *string // the error text of a server that refused to start
	Result  value
	Failed  bool // the result is marked failed
	Error   value
	Text    string // the readable text
}

// String describes the answer in a few words, for the report of a failed case.
func (a Answer) String() string {
	switch {
	case a.Refused != nil:
		return "no start: " + clip(*a.Refused, 400)
	case a.Error != nil:
		return "error " + show(a.Error)
	case a.Failed:
		return "failed " + show(a.Result)
	}
	return "ok " + show(a.Result)
}

var (
	alternative = regexp.MustCompile(`\|(error|ok|failed|result|start):`)
	counted     = regexp.MustCompile(`^(count|max_count|max_len)=(\d+)$`)
	presence    = regexp.MustCompile(`^(has|no)\(([^)]+)\)$`)
	length      = regexp.MustCompile(`^len\(([^)]+)\)(>=|<=|!=|=|>|<)(\d+)$`)
	comparison  = regexp.MustCompile(`^([\p{L}\p{N}_.*/-]+?)(!~|~|>=|<=|!=|=|>|<)`)
)

// Match checks an answer. It returns "" if the expectation is met, otherwise the reason. The error
// reports an expectation that isn't in the language.
func Match(expect string, a Answer) (string, error) {
	var why []string
	for start := 0; start <= len(expect); {
		alt := expect[start:]
		if at := alternative.FindStringIndex(alt); at != nil {
			alt = alt[:at[0]]
		}
		start += len(alt) + 1
		met, seen, err := matchOne(alt, a)
		if err != nil {
			return "", fmt.Errorf("%w in %q", err, expect)
		}
		if met {
			return "", nil
		}
		why = append(why, seen...)
	}
	if len(why) == 0 {
		why = []string{"another kind of outcome"}
	}
	return fmt.Sprintf("%s; wanted %s; got %s", strings.Join(why, "; "), clip(expect, 200), a), nil
}

func matchOne(alt string, a Answer) (met bool, why []string, err error) {
	head, rest, _ := strings.Cut(alt, ":")
	checks := strings.Split(rest, " && ")
	switch head {
	case "start":
		if a.Refused == nil {
			return false, nil, nil
		}
		met, err := found(rest, quote(*a.Refused))
		return met, nil, err
	case "error":
		kinds := strings.Split(checks[0], "|")
		for _, k := range kinds {
			if !knownKind(k) {
				return false, nil, fmt.Errorf("unknown kind %q", k)
			}
		}
		if kind, ok := textOf(get(a.Error, "kind")); !ok || !slices.Contains(kinds, kind) {
			return false, nil, nil
		}
		return unmet(checks[1:], a.Error, a.Text)
	case "ok", "failed", "result":
		if a.Result == nil || head != "result" && a.Failed != (head == "failed") {
			return false, nil, nil
		}
		return unmet(checks, a.Result, a.Text)
	}
	return false, nil, fmt.Errorf("no such kind of outcome: %q", head)
}

func knownKind(k string) bool { return slices.Contains(tool.Kinds(), tool.Kind(k)) }

func unmet(checks []string, body value, text string) (met bool, why []string, err error) {
	for _, c := range checks {
		met, seen, err := check(c, body, text)
		if err != nil {
			return false, nil, err
		}
		if !met {
			why = append(why, seen)
		}
	}
	return len(why) == 0, why, nil
}

func check(c string, body value, text string) (met bool, seen string, err error) {
	if c == "any" {
		return true, "", nil
	}
	if needle, ok := strings.CutPrefix(c, "contains="); ok {
		return holds(body, needle), "lacks " + clip(needle, 60), nil
	}
	if needle, ok := strings.CutPrefix(c, "not_contains="); ok {
		return !holds(body, needle), "has " + clip(needle, 60), nil
	}
	if m := counted.FindStringSubmatch(c); m != nil {
		met, seen := checkCount(m[1], rational(m[2]), body)
		return met, seen, nil
	}
	if m := presence.FindStringSubmatch(c); m != nil {
		v := get(body, m[2])
		return (v != nil) == (m[1] == "has"), m[2] + " is " + show(v), nil
	}
	if m := length.FindStringSubmatch(c); m != nil {
		n, sized := size(lookUp(body, text, m[1]))
		return sized && ordered(whole(n), m[2], rational(m[3])), fmt.Sprintf("len(%s) is %d", m[1], n), nil
	}
	return checkField(c, body, text)
}

// lookUp is like get but also knows the readable text by its name.
func lookUp(body value, text, path string) value {
	if path == "text" {
		return quote(text)
	}
	return get(body, path)
}

func whole(n int) *big.Rat { return big.NewRat(int64(n), 1) }

// holds looks for a text in the JSON of body, as it is or with JSON's escapes.
func holds(body value, needle string) bool {
	all, escaped := dump(body), string(quote(needle))
	return strings.Contains(all, needle) || strings.Contains(all, escaped[1:len(escaped)-1])
}

func checkCount(what string, limit *big.Rat, body value) (bool, string) {
	n, op := 0, "<="
	switch what {
	case "max_len":
		n = utf8.RuneCountInString(dump(body))
	case "count":
		op = "="
		fallthrough
	default:
		list := listOf(body)
		if !isList(list) {
			return false, "no list of entries or matches"
		}
		n = len(items(list))
	}
	return ordered(whole(n), op, limit), fmt.Sprintf("%s is %d", what, n)
}

// listOf returns the list in an answer.
func listOf(body value) value {
	for _, name := range []string{"entries", "matches", "items"} {
		if v := get(body, name); v != nil {
			return v
		}
	}
	return nil
}

func checkField(c string, body value, text string) (bool, string, error) {
	m := comparison.FindStringSubmatch(c)
	if m == nil {
		return false, "", fmt.Errorf("unknown check %q", c)
	}
	path, op, right := m[1], m[2], c[len(m[0]):]
	v := lookUp(body, text, path)
	seen := path + " is " + show(v)
	switch op {
	case "~", "!~":
		met, err := found(right, v)
		return v != nil && met == (op == "~"), seen, err
	case "=", "!=":
		return v != nil && same(v, literal(right)) == (op == "="), seen, nil
	}
	limit := rational(right)
	if limit == nil {
		return false, "", fmt.Errorf("no number: %q", right)
	}
	return ordered(rational(string(v)), op, limit), seen, nil
}

// literal parses the right side of a comparison: JSON, or else plain text.
func literal(text string) value {
	if v := value(strings.TrimSpace(text)); json.Valid(v) {
		return v
	}
	return quote(text)
}

// found looks for a pattern in a text, or in the JSON of anything else.
func found(pattern string, v value) (bool, error) {
	re, err := compile(pattern)
	if err != nil {
		return false, err
	}
	hay, ok := textOf(v)
	if !ok {
		hay = dump(v)
	}
	return re.MatchString(hay), nil
}

var (
	dollar    = regexp.MustCompile(`\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\$`)
	multiline = regexp.MustCompile(`\(\?[a-zA-Z]*m`)
)

// compile compiles a pattern of a case. The cases were written for Python, where a dollar sign also
// matches before a final newline.
func compile(pattern string) (*regexp.Regexp, error) {
	if !multiline.MatchString(pattern) {
		pattern = dollar.ReplaceAllStringFunc(pattern, func(m string) string {
			if m == "$" {
				return `(?:\n?\z)`
			}
			return m
		})
	}
	return regexp.Compile(pattern)
}
