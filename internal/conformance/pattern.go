package conformance

import (
	"regexp"
	"strings"
)

// The cases were written for another regular expression engine. What the two
// share is spelled the same, but for a few classes and anchors: outside and
// inside of brackets.
var (
	outside = map[byte]string{
		'd': `\p{Nd}`, 'D': `\P{Nd}`, 'Z': `\z`,
		'w': `[\p{L}\p{N}_]`, 'W': `[^\p{L}\p{N}_]`,
		's': `[\s\v\x1c-\x1f\x{85}\p{Z}]`, 'S': `[^\s\v\x1c-\x1f\x{85}\p{Z}]`,
	}
	inside = map[byte]string{
		'd': `\p{Nd}`, 'D': `\P{Nd}`, 'w': `\p{L}\p{N}_`, 's': `\s\v\x1c-\x1f\x{85}\p{Z}`,
	}
)

var multiline = regexp.MustCompile(`\(\?[a-zA-Z]*m`)

// compile reads a pattern of a case: classes know all of Unicode, and a dollar
// sign holds before a final newline too.
func compile(pattern string) (*regexp.Regexp, error) {
	lines := multiline.MatchString(pattern)
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(escape(pattern[i], inClass))
		case c == '[' && !inClass:
			inClass = true
			b.WriteByte(c)
			i += copyClassStart(&b, pattern[i+1:])
		case c == ']' && inClass:
			inClass = false
			b.WriteByte(c)
		case c == '[':
			b.WriteString(`\[`)
		case c == '$' && !inClass && !lines:
			b.WriteString(`(?:\n?\z)`)
		default:
			b.WriteByte(c)
		}
	}
	return regexp.Compile(b.String())
}

// copyClassStart copies a "^" and a "]" that stands for itself, and counts them.
func copyClassStart(b *strings.Builder, rest string) int {
	n := 0
	if strings.HasPrefix(rest, "^") {
		n++
	}
	b.WriteString(rest[:n])
	if strings.HasPrefix(rest[n:], "]") {
		b.WriteString(`\]`)
		n++
	}
	return n
}

func escape(c byte, inClass bool) string {
	table := outside
	if inClass {
		table = inside
	}
	if text, ok := table[c]; ok {
		return text
	}
	return `\` + string(rune(c))
}
