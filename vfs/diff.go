package vfs

import (
	"fmt"
	"strings"
)

const (
	diffContext = 3
	diffEdits   = 100      // replacements that a diff shows
	diffBytes   = 32 << 10 // of one diff
	diffLine    = 500      // characters of a line of it
)

// unified returns a diff of the first replacements, at the offsets at, of n. It needs no search,
// since it knows the offsets, and reads lines that it doesn't show only to count them. It shortens
// long parts and says so.
func unified(rel, text string, at []int, n int, p editParams) string {
	d := &differ{text: text}
	fmt.Fprintf(&d.out, "--- a/%s\n+++ b/%s\n", rel, rel)
	edits := lineEdits(text, at, p)
	for len(edits) > 0 {
		edits = edits[d.hunk(edits):]
	}
	if d.full {
		d.out.WriteString("(the rest of the diff is not shown)\n")
	}
	if more := n - len(at); more > 0 {
		fmt.Fprintf(&d.out, "(%s not shown)\n", count(more, "more replacement", "more replacements"))
	}
	return d.out.String()
}

// lineEdit replaces text[start:end], which are whole lines, by now.
type lineEdit struct {
	start, end int
	now        string
}

func lineEdits(text string, at []int, p editParams) (edits []lineEdit) {
	for i := 0; i < len(at); {
		var now strings.Builder
		start := strings.LastIndexByte(text[:at[i]], '\n') + 1
		end := start
		for first := i; i < len(at) && (i == first || !strings.Contains(text[end:at[i]], "\n")); i++ {
			now.WriteString(text[end:at[i]])
			now.WriteString(p.NewString)
			end = at[i] + len(p.OldString)
		}
		if whole := now.Len() == 0 || strings.HasSuffix(now.String(), "\n"); !whole || text[end-1] != '\n' {
			rest := endOfLine(text, end)
			now.WriteString(text[end:rest])
			end = rest
		}
		edits = append(edits, lineEdit{start, end, now.String()})
		for i < len(at) && at[i] < end { // on the line that was taken in to its end
			i++
		}
	}
	return edits
}

// endOfLine returns the end, after its newline, of the line that contains at.
func endOfLine(text string, at int) int {
	if i := strings.IndexByte(text[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(text)
}

// differ writes the hunks of one diff.
type differ struct {
	text string
	out  strings.Builder
	full bool

	counted, line int // line is the number of lines before text[counted]
	grown         int // lines that the hunks so far have added
}

// hunk writes the first of edits, together with those close to it, and returns their number.
func (d *differ) hunk(edits []lineEdit) (n int) {
	from := d.back(edits[0].start)
	end := edits[0].end
	for n = 1; n < len(edits) && d.near(end, edits[n].start); n++ {
		end = edits[n].end
	}
	to := end
	for range diffContext {
		to = endOfLine(d.text, to)
	}
	d.line += strings.Count(d.text[d.counted:from], "\n")
	d.counted = from
	old := lineCount(d.text[from:to])
	grown := 0
	for _, e := range edits[:n] {
		grown += lineCount(e.now) - lineCount(d.text[e.start:e.end])
	}
	fmt.Fprintf(&d.out, "@@ -%s +%s @@\n", span(d.line, old), span(d.line+d.grown, old+grown))
	d.grown += grown
	for _, e := range edits[:n] {
		d.lines(" ", d.text[from:e.start])
		d.lines("-", d.text[e.start:e.end])
		d.lines("+", e.now)
		from = e.end
	}
	d.lines(" ", d.text[from:to])
	return n
}

// back returns the start of the lines of context before at.
func (d *differ) back(at int) int {
	for range diffContext {
		at = strings.LastIndexByte(d.text[:max(at-1, 0)], '\n') + 1
	}
	return at
}

// near reports whether the contexts of two edits touch.
func (d *differ) near(end, start int) bool {
	for range 2 * diffContext {
		end = endOfLine(d.text, end)
	}
	return end >= start
}

// span returns a range of lines in the form of a hunk's header; before is the number of lines
// before it.
func span(before, lines int) string {
	switch lines {
	case 0:
		return fmt.Sprintf("%d,0", before)
	case 1:
		return fmt.Sprint(before + 1)
	}
	return fmt.Sprintf("%d,%d", before+1, lines)
}

func lineCount(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && s[len(s)-1] != '\n' {
		n++
	}
	return n
}

func (d *differ) lines(prefix, text string) {
	for line := range strings.Lines(text) {
		if d.full = d.full || d.out.Len() > diffBytes; d.full {
			return
		}
		d.out.WriteString(prefix)
		line, whole := strings.CutSuffix(line, "\n")
		if short, cut := firstChars(line, diffLine); cut {
			line = short + "…"
		}
		d.out.WriteString(line + "\n")
		if !whole {
			d.out.WriteString("\\ No newline at end of file\n")
		}
	}
}
