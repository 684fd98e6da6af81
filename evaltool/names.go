package evaltool

import (
	"slices"
	"strings"
)

// keywords of Python can't be the names of globals.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
	"elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
	"not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
}

// isIdentifier tells whether name can be a global: an ASCII identifier of
// Python, no keyword, and none of the interpreter's own __names__.
func isIdentifier(name string) bool {
	if name == "" || isDigit(name[0]) || slices.Contains(keywords, name) {
		return false
	}
	for _, c := range []byte(name) {
		if c != '_' && !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return !strings.HasPrefix(name, "__") || !strings.HasSuffix(name, "__")
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
