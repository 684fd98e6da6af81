package evaltool

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// template is the content of a write: literal text and names of globals.
type template struct {
	parts []part
}

type part struct {
	text string // literal, or the name
	name bool
}

// parseTemplate parses {name}, {{ and }}. It refuses anything else in braces: an attribute, an index, a conversion or a
// format would let the code change the meaning of the caller's template, and could reach into its objects. The code
// itself can set a global to the desired text of a file.
func parseTemplate(content string) (template, error) {
	var t template
	for content != "" {
		at := strings.IndexAny(content, "{}")
		if at < 0 {
			at = len(content)
		}
		t.literal(content[:at])
		rest, err := t.brace(content[at:])
		if err != nil {
			return template{}, err
		}
		content = rest
	}
	return t, nil
}

// brace parses a leading brace expression, if there is one, and returns the rest.
func (t *template) brace(content string) (string, error) {
	switch {
	case content == "":
		return "", nil
	case strings.HasPrefix(content, "{{"), strings.HasPrefix(content, "}}"):
		t.literal(content[:1])
		return content[2:], nil
	case content[0] == '}':
		return "", errors.New("a single } stands in it; write }} for a brace")
	}
	name, rest, closed := strings.Cut(content[1:], "}")
	if !closed {
		return "", errors.New("a { is not closed; write {{ for a brace")
	}
	if !isIdentifier(name) {
		return "", fmt.Errorf("{%s} is not a plain name; only {name}, {{ and }} are allowed, without attribute, index, conversion or format: set a global to that text in the code, and name it", Clip(name, 80))
	}
	t.parts = append(t.parts, part{text: name, name: true})
	return rest, nil
}

func (t *template) literal(text string) {
	if text != "" {
		t.parts = append(t.parts, part{text: text})
	}
}

// names lists the globals that the template needs, each once.
func (t template) names() []string {
	var names []string
	seen := map[string]bool{}
	for _, p := range t.parts {
		if p.name && !seen[p.text] {
			seen[p.text] = true
			names = append(names, p.text)
		}
	}
	return names
}

// missingName is the error for a template's name without a value.
type missingName string

func (m missingName) Error() string { return "there is no global " + string(m) }

var errTooLong = errors.New("the text is too long")

// render fills in the names. The error is a missingName for the first name without a value, or errTooLong for a text of
// more than limit characters. It never builds more than limit.
func (t template) render(values map[string]string, limit int) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text, known := p.text, true
		if p.name {
			text, known = values[p.text]
		}
		if !known {
			return "", missingName(p.text)
		}
		if limit -= utf8.RuneCountInString(text); limit < 0 {
			return "", errTooLong
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
