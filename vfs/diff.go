package vfs

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

const (
	diffContext = 3
	diffEdits   = 100      // replacements that a diff shows
	diffBytes   = 32 << 10 // of one diff
	diffLine    = 500      // characters of a line of it
)

// unified shows the replacements as a diff. It is written from the places that
// are known, so it takes no search; what is long is shortened and says so.
func unified(rel, text string, at []int, p editParams) string {
	shown := at[:min(len(at), diffEdits)]
	edits := make([]udiff.Edit, len(shown))
	for i, start := range shown {
		edits[i] = udiff.Edit{Start: start, End: start + len(p.OldString), New: p.NewString}
	}
	diff, err := udiff.ToUnified("a/"+rel, "b/"+rel, text, edits, diffContext)
	if err != nil {
		return ""
	}
	diff = shorten(diff)
	if more := len(at) - len(shown); more > 0 {
		diff += fmt.Sprintf("(%s not shown)\n", count(more, "more replacement", "more replacements"))
	}
	return diff
}

func shorten(diff string) string {
	var b strings.Builder
	for line := range strings.Lines(diff) {
		if b.Len() > diffBytes {
			b.WriteString("(the rest of the diff is not shown)\n")
			break
		}
		if short, cut := firstChars(line, diffLine); cut {
			line = short + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
