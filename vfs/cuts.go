package vfs

import (
	"strings"
	"sync/atomic"
)

// cut is a reason why a search left something out.
type cut uint32

const (
	answerFull  cut = 1 << iota // more matches than an answer holds
	lineCut                     // only the first part of a line was searched
	fileCut                     // only the first part of a file was searched
	walkLimited                 // time, memory or descriptors of the walk
)

var cutNotices = []struct {
	why    cut
	notice string
}{
	{answerFull, "there are more matches than one answer holds; narrow the pattern, or search a subdirectory"},
	{lineCut, "a line was too long for this pattern and was searched in its first part only; use a literal, or grep in shell_execute"},
	{fileCut, "a file with a line over 4 MiB, or that grew over 1 GiB, was searched in its first part only; use grep in shell_execute"},
	{walkLimited, "the search met its limit of 10 s, of memory or of open directories; search a subdirectory"},
}

// jsonSize is roughly the size of a text in an answer.
func jsonSize(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c == '<', c == '>', c == '&':
			n += len(`\u0000`) - 1
		case c == '"', c == '\\':
			n++
		}
	}
	return n
}

// cuts are the cuts of one search. Many goroutines add to it.
type cuts struct{ met atomic.Uint32 }

func (c *cuts) add(why cut) { c.met.Or(uint32(why)) }

// notices returns the reasons as sentences, or none if nothing was left out.
func (c *cuts) notices() []string {
	var notices []string
	for _, n := range cutNotices {
		if c.met.Load()&uint32(n.why) != 0 {
			notices = append(notices, n.notice)
		}
	}
	return notices
}

// writeNotices writes the notices at the end of a rendering.
func writeNotices(b *strings.Builder, notices []string) {
	for _, n := range notices {
		b.WriteString("(" + n + ")\n")
	}
}
