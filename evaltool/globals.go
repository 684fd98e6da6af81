package evaltool

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// maxDepth is how deeply a global may be nested.
const maxDepth = 200

func checkGlobals(p Params) error {
	for _, name := range sortedNames(p.Globals) {
		field := "globals." + Clip(name, maxPathFold)
		if !isIdentifier(name) || name == "reads" {
			return tool.Errorf(tool.Invalid, "globals: %q can't be a global; give a Python identifier that is no keyword, not \"reads\" and not __like_this__", Clip(name, maxPathFold)).In(field)
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
	if depthOf(text) > maxDepth {
		return "is nested more than " + strconv.Itoa(maxDepth) + " levels deep"
	}
	return ""
}

// depthOf is how deeply valid JSON is nested.
func depthOf(text string) int {
	depth, deepest, inString := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}
