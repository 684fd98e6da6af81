package evaltool

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// template is the content of a write: literal text and fields, as in Python's str.format_map. The sandbox has the values, and
// renders each field; this process only joins the texts.
type template struct {
	parts []part
}

type part struct {
	text  string // literal, or what stands between the braces
	field bool
}

// parseTemplate parses {name}, {name[index]}, {name!r}, {name:format}, {{ and }}. It refuses attributes, which could reach into
// the objects of the code, and anything else that is no field.
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
	field, rest, err := fieldOf(content[1:])
	if err != nil {
		return "", err
	}
	if err := checkField(field, true); err != nil {
		return "", fmt.Errorf("{%s} %w; write a field as {name}, {name[0]}, {name!r} or {name:03d}, and {{ and }} for braces: for anything else set a global to that text in the code, and name it", Clip(field, 80), err)
	}
	t.parts = append(t.parts, part{text: field, field: true})
	return rest, nil
}

// fieldOf returns the text up to the brace that closes a field, as Python finds it.
func fieldOf(content string) (field, rest string, err error) {
	depth, index := 1, false
	for i, c := range []byte(content) {
		switch {
		case c == '[' && depth == 1:
			index = true
		case c == ']':
			index = false
		case index:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return content[:i], content[i+1:], nil
			}
		}
	}
	return "", "", errors.New("a { is not closed; write {{ for a brace")
}

// checkField checks a field. Its format may have fields of its own, which have none.
func checkField(field string, outer bool) error {
	name := field[:len(field)-len(strings.TrimLeftFunc(field, isNamed))]
	rest := field[len(name):]
	if !isIdentifier(name) {
		return errors.New("doesn't begin with the plain name of a global")
	}
	for strings.HasPrefix(rest, "[") {
		index, after, closed := strings.Cut(rest[1:], "]")
		if !closed || index == "" {
			return errors.New("has an index that is empty or not closed")
		}
		rest = after
	}
	if strings.HasPrefix(rest, ".") {
		return errors.New("has an attribute, which is not allowed")
	}
	if conversion, ok := strings.CutPrefix(rest, "!"); ok {
		if conversion == "" || !strings.ContainsRune("rsa", rune(conversion[0])) {
			return errors.New("has a conversion other than !r, !s and !a")
		}
		rest = conversion[1:]
	}
	format, ok := strings.CutPrefix(rest, ":")
	if !ok && rest != "" {
		return errors.New("is not a field")
	}
	return checkFormat(format, outer)
}

func checkFormat(format string, outer bool) error {
	for {
		at := strings.IndexAny(format, "{}")
		switch {
		case at < 0:
			return nil
		case format[at] == '}' || !outer:
			return errors.New("has a format with braces that are not a field")
		}
		field, rest, err := fieldOf(format[at+1:])
		if err != nil {
			return err
		}
		if err := checkField(field, false); err != nil {
			return fmt.Errorf("has a format with {%s}, which %w", field, err)
		}
		format = rest
	}
}

// isNamed reports whether a character may be part of a name: whatever is no syntax of a field.
func isNamed(r rune) bool { return !strings.ContainsRune("[].!:{}", r) }

func (t *template) literal(text string) {
	if text != "" {
		t.parts = append(t.parts, part{text: text})
	}
}

// fields lists the fields of the template, each once.
func (t template) fields() []string {
	var fields []string
	for _, p := range t.parts {
		if p.field && !slices.Contains(fields, p.text) {
			fields = append(fields, p.text)
		}
	}
	return fields
}

// missingField is the error for a field without a text.
type missingField string

func (m missingField) Error() string { return "there is no text of {" + string(m) + "}" }

var errTooLong = errors.New("the text is too long")

// render joins the texts. The error is a missingField for the first field without a text, or errTooLong for a result of
// more than limit characters. It never builds more than limit.
func (t template) render(texts map[string]string, limit int) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		text, known := p.text, true
		if p.field {
			text, known = texts[p.text]
		}
		if !known {
			return "", missingField(p.text)
		}
		if limit -= utf8.RuneCountInString(text); limit < 0 {
			return "", errTooLong
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
