package evaltool

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// keywords of Python can't be the names of globals.
var keywords = []string{
	"False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
	"elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
	"not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
}

// isIdentifier reports whether name can be a global: an identifier of Python as its
// parser would store it (NFKC), no keyword, and none of the interpreter's own
// __names__.
func isIdentifier(name string) bool {
	if name == "" || slices.Contains(keywords, name) || !norm.NFKC.IsNormalString(name) {
		return false
	}
	for i, c := range name {
		if !begins(c) && (i == 0 || !unicode.In(c, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)) {
			return false
		}
	}
	return !strings.HasPrefix(name, "__") || !strings.HasSuffix(name, "__")
}

// begins reports whether an identifier may begin with c.
func begins(c rune) bool {
	return c == '_' || unicode.In(c, unicode.L, unicode.Nl, unicode.Other_ID_Start) &&
		!unicode.In(c, unicode.Pattern_Syntax, unicode.Pattern_White_Space)
}
