package rlm

import (
	"errors"
	"strings"

	"github.com/wisbox/wisbox/internal/budget"
)

const jsonSpace = " \t\r\n"

// errNoArray reports that a text is not a JSON array.
var errNoArray = errors.New("no JSON array")

// eachItem cuts a JSON array at the commas between its items and calls take with
// each, until take fails. It keeps no list of the items and parses each one only to find
// its end: the text is a valid array if all of its items are valid JSON.
func eachItem(text string, b *budget.Budget, take func(item string) error) error {
	rest := strings.TrimLeft(text, jsonSpace)
	if rest == "" || rest[0] != '[' {
		return errNoArray
	}
	rest = strings.TrimLeft(rest[1:], jsonSpace)
	if rest != "" && rest[0] == ']' {
		return afterArray(rest)
	}
	for {
		if err := b.Step(1); err != nil {
			return err
		}
		end, err := endOfItem(rest, b)
		if err != nil {
			return err
		}
		item := strings.Trim(rest[:end], jsonSpace)
		if item == "" {
			return errNoArray
		}
		if err := take(item); err != nil {
			return err
		}
		if rest[end] == ']' {
			return afterArray(rest[end:])
		}
		rest = rest[end+1:]
	}
}

// afterArray checks that nothing stands after the bracket that ends an array.
func afterArray(rest string) error {
	if strings.Trim(rest[1:], jsonSpace) != "" {
		return errNoArray
	}
	return nil
}

// endOfItem returns the position of the comma or bracket that ends the first item of rest.
func endOfItem(rest string, b *budget.Budget) (int, error) {
	depth, quoted := 0, false
	for i := 0; i < len(rest); i++ {
		if i%stride == stride-1 {
			if err := b.Check(); err != nil {
				return 0, err
			}
		}
		switch c := rest[i]; {
		case quoted:
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			return i, nil
		case c == ']' || c == '}':
			depth--
		}
	}
	return 0, errNoArray
}
