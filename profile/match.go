package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/tool"
	"sync"
)

// byteOrderMark may begin a file, before its first line.
const byteOrderMark = "\ufeff"

// update applies a file's chunks in order.
func (f filePatch) update(whole string) (change, error) {
	text, marked := strings.CutPrefix(whole, byteOrderMark)
	c := change{path: f.path, old: splitLines(text), marked: marked}
	plain := make([]string, len(c.old))
	for i, line := range c.old {
		plain[i] = strings.TrimSuffix(line, "\n")
	}
	var now strings.Builder
	at := 0 // earlier lines are final
	for i, part := range f.chunks {
		from, part, err := part.find(plain, at)
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

// lineNumbers matches a header as in a unified diff, which is no line of the file.
var lineNumbers = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^-\d+(,\d+)? \+\d+(,\d+)?( @@.*)?$`) })

// find returns the line at which the chunk's old lines begin, at or after from, and the chunk as it fits there: blank
// lines at its start and end may be missing in the file.
func (c chunk) find(lines []string, from int) (int, chunk, error) {
	for _, header := range c.headers {
		at := seek(lines, []string{header}, from, false)
		if at < 0 && lineNumbers().MatchString(header) {
			continue
		}
		if at < 0 {
			return 0, c, fmt.Errorf("the line %q is not in the rest of the file", clip.Words(header))
		}
		from = at + 1
	}
	switch {
	case len(c.old()) == 0 && len(c.headers) == 0:
		return len(lines), c, nil
	case len(c.old()) == 0:
		return from, c, nil
	}
	for _, begin := range []chunk{c, c.withoutBlankStart()} {
		for fit, ok := begin, true; ok; fit, ok = fit.withoutBlankEnd() {
			if len(fit.old()) == 0 { // it had blank lines alone
				return from, fit, nil
			}
			at := seek(lines, fit.old(), from, c.atEnd)
			if at < 0 && from > 0 && len(c.headers) > 0 { // the header may be among the old lines
				at = seek(lines, fit.old(), from-1, c.atEnd)
			}
			if at >= 0 {
				return at, fit, nil
			}
		}
	}
	return 0, c, fmt.Errorf("its old lines, of which the first is %q, are not in the rest of the file", clip.Words(c.old()[0]))
}

// withoutBlankStart returns the chunk without the blank context lines at its start.
func (c chunk) withoutBlankStart() chunk {
	for len(c.lines) > 0 && c.lines[0].kind == ' ' && strings.TrimSpace(c.lines[0].text) == "" {
		c.lines = c.lines[1:]
	}
	return c
}

// withoutBlankEnd returns the chunk without the blank line at the end of its old lines, and of its new ones. If added
// lines follow a blank context line, it is added too.
func (c chunk) withoutBlankEnd() (chunk, bool) {
	lines := slices.Clone(c.lines)
	for i, l := range slices.Backward(lines) {
		if l.kind == '+' {
			continue
		}
		if strings.TrimSpace(l.text) != "" {
			return c, false
		}
		last := lines[len(lines)-1]
		if l.kind == ' ' && i < len(lines)-1 { // it separates the added lines
			lines[i].kind = '+'
		} else {
			lines = slices.Delete(lines, i, i+1)
		}
		if l.kind == '-' && last.kind == '+' && strings.TrimSpace(last.text) == "" {
			lines = lines[:len(lines)-1]
		}
		c.lines = lines
		return c, true
	}
	return c, false
}

// typographic has the characters that models write in ASCII: dashes, quotes, blanks.
var typographic = func() *strings.Replacer {
	var pairs []string
	for to, from := range map[string]string{"-": "‐‑‒–—―−", "'": "‘’‚‛", `"`: "“”„‟", " ": "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"} {
		for _, r := range from {
			pairs = append(pairs, string(r), to)
		}
	}
	return strings.NewReplacer(pairs...)
}()

// seek looks for lines among others: exactly, then ignoring trailing blanks, then ignoring leading
// and trailing blanks, then with ASCII for typographic characters too. With atEnd, the last lines have precedence.
func seek(lines, want []string, from int, atEnd bool) int {
	for _, norm := range []func(string) string{
		func(s string) string { return s },
		func(s string) string { return strings.TrimRight(s, " \t\r") },
		strings.TrimSpace,
		func(s string) string { return strings.TrimSpace(typographic.Replace(s)) },
	} {
		first, last := from, len(lines)-len(want)
		fits := func(at int) bool {
			return slices.EqualFunc(lines[at:at+len(want)], want, func(a, b string) bool { return norm(a) == norm(b) })
		}
		if atEnd && last >= first && fits(last) {
			return last
		}
		for at := first; at <= last; at++ {
			if fits(at) {
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
