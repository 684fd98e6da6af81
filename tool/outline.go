package tool

import (
	"fmt"
	"slices"
	"strings"
)

// Outline lists the tools of a set for a prompt, one per line: the name, the arguments (with
// "?" if optional), and the first sentence of the description.
func Outline(set *Set) string {
	var b strings.Builder
	for _, t := range set.Tools() {
		fmt.Fprintf(&b, "- `%s {%s}`: %s\n", t.Name, arguments(t), firstSentence(t.Description))
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

func firstSentence(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	if sentence, _, more := strings.Cut(line, ". "); more {
		return sentence + "."
	}
	return line
}
