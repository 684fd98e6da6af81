package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
)

// update applies a file's chunks in order.
func (f filePatch) update(whole string) (change, error) {
	c := change{path: f.path, old: splitLines(whole)}
	plain := make([]string, len(c.old))
	for i, line := range c.old {
		plain[i] = strings.TrimSuffix(line, "\n")
	}
	var now strings.Builder
	at := 0 // earlier lines are final
	for i, part := range f.chunks {
		from, err := part.find(plain, at)
		if err != nil {
			return c, notFound(f.path, i, err)
		}
		if i == 0 {
			c.from = from
			if from == len(c.old) && from > 0 && !strings.HasSuffix(c.old[from-1], "\n") {
				c.from-- // the last line gets a newline
			}
			at = c.from
		}
		now.WriteString(strings.Join(c.old[at:from], ""))
		part.write(&now, c.old, from)
		at = from + len(part.old())
	}
	c.to, c.now = at, now.String()
	return c, nil
}

func notFound(path string, i int, err error) error {
	return tool.Errorf(tool.NoMatch, "%s: chunk %d: %s; read the file again and give its exact lines", path, i+1, err).In("input")
}

// find returns the line at which the chunk's old lines begin, at or after from.
func (c chunk) find(lines []string, from int) (int, error) {
	for _, header := range c.headers {
		at := seek(lines, []string{header}, from, false)
		if at < 0 {
			return 0, fmt.Errorf("the line %q is not in the rest of the file", clip.Words(header))
		}
		from = at + 1
	}
	old := c.old()
	if len(old) == 0 {
		if len(c.headers) == 0 {
			return len(lines), nil
		}
		return from, nil
	}
	at := seek(lines, old, from, c.atEnd)
	if at < 0 && len(c.headers) > 0 { // the header may be among the old lines
		at = seek(lines, old, from-1, c.atEnd)
	}
	if at < 0 {
		return 0, fmt.Errorf("its old lines, of which the first is %q, are not in the rest of the file", clip.Words(old[0]))
	}
	return at, nil
}

// seek looks for lines among others: exactly, then ignoring trailing blanks, then ignoring leading
// and trailing blanks.
func seek(lines, want []string, from int, atEnd bool) int {
	for _, norm := range []func(string) string{
		func(s string) string { return s },
		func(s string) string { return strings.TrimRight(s, " \t\r") },
		strings.TrimSpace,
	} {
		first, last := from, len(lines)-len(want)
		if atEnd {
			first = max(first, last)
		}
		for at := first; at <= last; at++ {
			if slices.EqualFunc(lines[at:at+len(want)], want, func(a, b string) bool { return norm(a) == norm(b) }) {
				return at
			}
		}
	}
	return -1
}

// write writes the chunk's new lines. Context lines stay as in the file; added lines end like their
// neighbours.
func (c chunk) write(now *strings.Builder, old []string, at int) {
	end := "\n"
	if len(old) > 0 && strings.HasSuffix(old[max(0, min(at, len(old)-1))], "\r\n") {
		end = "\r\n"
	}
	for _, l := range c.lines {
		switch l.kind {
		case ' ':
			now.WriteString(old[at])
			at++
		case '-':
			at++
		case '+':
			if now.Len() > 0 && !strings.HasSuffix(now.String(), "\n") {
				now.WriteString(end)
			}
			now.WriteString(l.text + end)
		}
	}
}
