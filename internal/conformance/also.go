package conformance

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The further checks of a case, each named or with a value behind "=" or ":".
var alsoKinds = []string{
	"sh:", "not_contains=", "rss_mib=", "no_raw_control", "valid_utf8", "field_max:", "parallel", "exactly_one_ok",
}

func checkAlso(c *Case) error {
	for _, also := range c.Also {
		known := slices.ContainsFunc(alsoKinds, func(k string) bool { return strings.HasPrefix(also, k) })
		if !known {
			return fmt.Errorf("%s: unknown check %q", c.ID, also)
		}
	}
	return nil
}

// alsoOf lists the values of the further checks of one kind.
func alsoOf(c *Case, kind string) []string {
	var values []string
	for _, also := range c.Also {
		if value, ok := strings.CutPrefix(also, kind); ok {
			values = append(values, value)
		}
	}
	return values
}

func (c *Case) has(also string) bool { return slices.Contains(c.Also, also) }

// alsoReply makes the checks that look at one answer.
func alsoReply(c *Case, v vars, r Reply) []string {
	var problems []string
	for _, text := range alsoOf(c, "not_contains=") {
		needle, err := v.fill(text)
		if err != nil || holds(r.body(), needle) || strings.Contains(r.Answer.Text, needle) {
			problems = append(problems, "the answer holds "+text)
		}
	}
	if c.has("no_raw_control") && bytes.ContainsFunc(bytes.TrimRight(r.Raw, "\r\n"), isControl) {
		problems = append(problems, "the answer's line holds a raw control byte")
	}
	if c.has("valid_utf8") && (!utf8.Valid(r.Raw) || holds(r.body(), "\uFFFD")) {
		problems = append(problems, "the answer holds a cut character")
	}
	for _, limit := range alsoOf(c, "field_max:") {
		if why := overField(limit, r.Answer.Result); why != "" {
			problems = append(problems, why)
		}
	}
	return problems
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) }

func overField(limit string, body any) string {
	name, most, _ := strings.Cut(limit, "=")
	n, err := strconv.Atoi(most)
	length, sized := size(get(body, name))
	if err != nil || !sized || length > n {
		return fmt.Sprintf("%s has %d characters; at most %s are allowed", name, length, most)
	}
	return ""
}

// body is what the answer carries, result or error.
func (r Reply) body() any {
	if r.Answer.Error != nil {
		return r.Answer.Error
	}
	return r.Answer.Result
}
