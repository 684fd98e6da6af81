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
		if !slices.ContainsFunc(alsoKinds, func(k string) bool { return strings.HasPrefix(also, k) }) {
			return fmt.Errorf("%s: unknown check %q", c.ID, also)
		}
	}
	return nil
}

// also lists the values of the further checks of one kind.
func (c *Case) also(kind string) (values []string) {
	for _, also := range c.Also {
		if value, ok := strings.CutPrefix(also, kind); ok {
			values = append(values, value)
		}
	}
	return values
}

func (c *Case) has(also string) bool { return slices.Contains(c.Also, also) }

// alsoReply makes the further checks of one answer.
func (a *attempt) alsoReply(tool string, v vars, r Reply) {
	for _, text := range a.c.also("not_contains=") {
		needle, err := v.fill(text)
		if err != nil || holds(r.body(), needle) || strings.Contains(r.Answer.Text, needle) {
			a.problem("%s: the answer holds %s", tool, text)
		}
	}
	if a.c.has("no_raw_control") && bytes.ContainsFunc(bytes.TrimRight(r.Raw, "\r\n"), isControl) {
		a.problem("%s: the answer's line holds a raw control byte", tool)
	}
	if a.c.has("valid_utf8") && (!utf8.Valid(r.Raw) || holds(r.body(), "\uFFFD")) {
		a.problem("%s: the answer holds a cut character", tool)
	}
	for _, limit := range a.c.also("field_max:") {
		name, text, _ := strings.Cut(limit, "=")
		most, err := strconv.Atoi(text)
		n, sized := size(get(r.Answer.Result, name))
		if err != nil || !sized || n > most {
			a.problem("%s: %s has %d characters; at most %s are allowed", tool, name, n, text)
		}
	}
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) }
