package evaltool

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// Bounds of JSON that Python's json module reads and writes without a change.
const (
	maxDepth  = 200  // levels of nesting
	maxDigits = 4300 // of a whole number: Python converts no longer ones
)

func checkGlobals(p Params) error {
	for _, name := range sortedNames(p.Globals) {
		field := "globals." + Clip(name, maxPathFold)
		if !isIdentifier(name) || name == "reads" {
			return tool.Errorf(tool.Invalid, "globals: %q can't be a global; give a Python identifier that is not a keyword, not \"reads\" and not __like_this__", Clip(name, maxPathFold)).In(field)
		}
		if why := jsonFault(p.Globals[name]); why != "" {
			return tool.Errorf(tool.Invalid, "globals: %s %s; its value must be JSON text, a string with its quotes for instance", name, why).In(field)
		}
	}
	return nil
}

func jsonFault(text string) string {
	if !utf8.ValidString(text) || !json.Valid([]byte(text)) {
		return "is not JSON"
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for depth := 0; ; {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		switch t := token.(type) {
		case json.Delim:
			depth += map[json.Delim]int{'[': 1, '{': 1, ']': -1, '}': -1}[t]
			if depth > maxDepth {
				return "is nested more than " + strconv.Itoa(maxDepth) + " levels deep"
			}
		case json.Number:
			if !fits(string(t)) {
				return "has a number that is too large"
			}
		}
	}
}

// fits reports whether Python reads the number as a finite one.
func fits(number string) bool {
	if !strings.ContainsAny(number, ".eE") {
		return len(strings.TrimPrefix(number, "-")) <= maxDigits
	}
	_, err := strconv.ParseFloat(number, 64)
	return err == nil
}
