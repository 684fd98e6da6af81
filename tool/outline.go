package tool

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Outline lists the tools of a set for a prompt, one per line: the name, the arguments (with
// "?" if optional), and the first sentence of the description.
func Outline(set *Set) string {
	var b strings.Builder
	for _, t := range set.Tools() {
		fmt.Fprintf(&b, "- `%s {%s}`: %s\n", t.Name, arguments(t), FirstSentence(t.Description))
	}
	return b.String()
}

func arguments(t Tool) string {
	var names []string
	for _, name := range t.Input.PropertyOrder {
		if !slices.Contains(t.Input.Required, name) {
			name += "?"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// FirstSentence returns the first sentence of the first line of a text. An abbreviation (e.g., i.e.)
// ends no sentence, and neither does a full stop before a lower-case word.
func FirstSentence(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for at := 0; ; {
		n := strings.Index(line[at:], ". ")
		if n < 0 {
			return line
		}
		at += n + len(". ")
		before, after := line[:at-len(". ")], strings.TrimLeft(line[at:], " ")
		word := before[strings.LastIndexAny(before, " (")+1:]
		next, _ := utf8.DecodeRuneInString(after)
		if !abbreviates(word) && !unicode.IsLower(next) {
			return before + "."
		}
	}
}

// abbreviates reports whether a word, without its full stop, is an abbreviation.
func abbreviates(word string) bool {
	return strings.Contains(word, ".") && len(word) <= len("e.g") || slices.Contains([]string{"etc", "vs", "cf", "approx", "incl", "No"}, word)
}
