package conformance

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// Answer is what one call came to, in the form that expectations look at.
type Answer struct {
	Refused *string // the server did not start: its words
	Result  any     // a result, nil otherwise
	Failed  bool    // the result is marked failed
	Error   any     // an error object, nil otherwise
	Text    string  // the readable text
}

var (
	alternative = regexp.MustCompile(`\|(error|ok|failed|result|start):`)
	counted     = regexp.MustCompile(`^(count|max_count|max_len)=(\d+)$`)
	presence    = regexp.MustCompile(`^(has|no)\(([^)]+)\)$`)
	length      = regexp.MustCompile(`^len\(([^)]+)\)(>=|<=|!=|=|>|<)(\d+)$`)
	comparison  = regexp.MustCompile(`^([\p{L}\p{N}_.*/-]+?)(!~|~|>=|<=|!=|=|>|<)`)
)

// Match judges an answer. It returns "" when the expectation is met, else why
// it is not. The error tells of an expectation that is not in the language.
func Match(expect string, a Answer) (string, error) {
	var why []string
	for _, alt := range alternatives(expect) {
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

func alternatives(expect string) []string {
	var alts []string
	start := 0
	for _, at := range alternative.FindAllStringIndex(expect, -1) {
		alts = append(alts, expect[start:at[0]])
		start = at[0] + 1
	}
	return append(alts, expect[start:])
}

func matchOne(alt string, a Answer) (met bool, why []string, err error) {
	head, rest, found := strings.Cut(alt, ":")
	if !found || !slices.Contains([]string{"error", "ok", "failed", "result", "start"}, head) {
		return false, nil, fmt.Errorf("no such kind of outcome: %q", head)
	}
	if head == "start" {
		met, err = refusedWith(rest, a)
		return met, nil, err
	}
	checks := strings.Split(rest, " && ")
	body, fits := a.Result, a.Result != nil && a.Refused == nil
	if head == "error" {
		kinds := strings.Split(checks[0], "|")
		if err := knownKinds(kinds); err != nil {
			return false, nil, err
		}
		body, checks, fits = a.Error, checks[1:], a.isError(kinds)
	} else if head != "result" {
		fits = fits && a.Failed == (head == "failed")
	}
	if !fits {
		return false, nil, nil
	}
	why, err = unmet(checks, body, a.Text)
	return len(why) == 0, why, err
}

func refusedWith(pattern string, a Answer) (bool, error) {
	if a.Refused == nil {
		return false, nil
	}
	re, err := compile(pattern)
	if err != nil {
		return false, err
	}
	return re.MatchString(*a.Refused), nil
}

func knownKinds(kinds []string) error {
	for _, k := range kinds {
		if !slices.Contains(tool.Kinds(), tool.Kind(k)) {
			return fmt.Errorf("unknown kind %q", k)
		}
	}
	return nil
}

func (a Answer) isError(kinds []string) bool {
	e, ok := a.Error.(*object)
	if !ok || a.Refused != nil {
		return false
	}
	kind, ok := e.member["kind"].(string)
	return ok && slices.Contains(kinds, kind)
}

func unmet(checks []string, body any, text string) ([]string, error) {
	var why []string
	for _, c := range checks {
		met, seen, err := check(c, body, text)
		if err != nil {
			return nil, err
		}
		if !met {
			why = append(why, seen)
		}
	}
	return why, nil
}

func check(c string, body any, text string) (met bool, seen string, err error) {
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
		return checkCount(m[1], m[2], body)
	}
	if m := presence.FindStringSubmatch(c); m != nil {
		value := get(body, m[2])
		return (value != missing{}) == (m[1] == "has"), m[2] + " is " + show(value), nil
	}
	if m := length.FindStringSubmatch(c); m != nil {
		value := lookUp(body, text, m[1])
		n, sized := size(value)
		met := sized && ordered(number(strconv.Itoa(n)), m[2], number(m[3]))
		return met, fmt.Sprintf("len(%s) is %d of %s", m[1], n, show(value)), nil
	}
	return checkField(c, body, text)
}

// holds looks for a text in the JSON of body, as it is or as JSON escapes it.
func holds(body any, needle string) bool {
	whole, escaped := dump(body), dump(needle)
	return strings.Contains(whole, needle) || strings.Contains(whole, escaped[1:len(escaped)-1])
}

func checkCount(what, limit string, body any) (bool, string, error) {
	n := 0
	if what == "max_len" {
		n = utf8.RuneCountInString(dump(body))
	} else {
		list, ok := itemsOf(body)
		if !ok {
			return false, "no list of entries or matches", nil
		}
		n = len(list)
	}
	op := "<="
	if what == "count" {
		op = "="
	}
	return ordered(number(strconv.Itoa(n)), op, number(limit)), fmt.Sprintf("%s is %d", what, n), nil
}

func itemsOf(body any) ([]any, bool) {
	o, ok := body.(*object)
	if !ok {
		return nil, false
	}
	for _, name := range []string{"entries", "matches", "items"} {
		if value, there := o.member[name]; there {
			list, ok := value.([]any)
			return list, ok
		}
	}
	return nil, false
}

func checkField(c string, body any, text string) (bool, string, error) {
	m := comparison.FindStringSubmatch(c)
	if m == nil {
		return false, "", fmt.Errorf("unknown check %q", c)
	}
	path, op, right := m[1], m[2], c[len(m[0]):]
	value := lookUp(body, text, path)
	seen := path + " is " + show(value)
	if op == "~" || op == "!~" {
		met, err := found(right, value, op == "~")
		return met, seen, err
	}
	if op != "=" && op != "!=" {
		return checkOrder(value, op, right, seen)
	}
	if value == (missing{}) {
		return false, seen, nil
	}
	return same(value, literal(right)) == (op == "="), seen, nil
}

func found(pattern string, value any, want bool) (bool, error) {
	if value == (missing{}) {
		return false, nil
	}
	re, err := compile(pattern)
	if err != nil {
		return false, err
	}
	hay, isText := value.(string)
	if !isText {
		hay = dump(value)
	}
	return re.MatchString(hay) == want, nil
}

func checkOrder(value any, op, right, seen string) (bool, string, error) {
	n, ok := value.(number)
	if !ok {
		return false, seen, nil
	}
	limit, err := strconv.ParseFloat(strings.TrimSpace(right), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return false, "", fmt.Errorf("no number: %q", right)
	}
	if math.IsNaN(limit) {
		return false, seen, nil
	}
	return ordered(n, op, fromFloat(limit)), seen, nil
}

func fromFloat(f float64) number {
	if math.IsInf(f, 0) {
		return number(fmt.Sprintf("%.0fe999", math.Copysign(1, f)))
	}
	return number(strconv.FormatFloat(f, 'e', -1, 64))
}

func ordered(a number, op string, b number) bool {
	c := a.compare(b)
	switch op {
	case "=":
		return c == 0
	case "!=":
		return c != 0
	case ">":
		return c > 0
	case "<":
		return c < 0
	case ">=":
		return c >= 0
	}
	return c <= 0
}

// literal reads the right side of a comparison: JSON, or else plain text.
func literal(text string) any {
	switch strings.Trim(text, " \t\r\n") {
	case "NaN":
		return missing{} // equal to nothing
	case "Infinity":
		return number("1e999")
	case "-Infinity":
		return number("-1e999")
	}
	if value, err := parse([]byte(text)); err == nil {
		return value
	}
	return text
}
