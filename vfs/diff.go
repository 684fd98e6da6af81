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

// unified shows the first replacements, those at at, of n as a diff. It is written
// from the places that are known, so it takes no search and looks at no line that it
// doesn't show but to count it; what is long is shortened and says so.
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

// lineEdit puts now in the place of text[start:end], whole lines.
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

// endOfLine is where the line that at lies in ends, its newline counted in.
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

	counted, line int // line is how many lines there are before text[counted]
	grown         int // lines that the hunks so far have added
}

// hunk writes the first of edits with those that lie near, and says how many it wrote.
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

// back is where the lines of context before at begin.
func (d *differ) back(at int) int {
	for range diffContext {
		at = strings.LastIndexByte(d.text[:max(at-1, 0)], '\n') + 1
	}
	return at
}

// near says that the contexts of two edits meet.
func (d *differ) near(end, start int) bool {
	for range 2 * diffContext {
		end = endOfLine(d.text, end)
	}
	return end >= start
}

// span is a range of lines as a hunk's head has it: before is how many lines come
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
