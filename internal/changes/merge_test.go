package changes

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestWhatBothChangedStandsBetweenMarkers(t *testing.T) {
	const base = "1\n2\n3\n4\n5\n"
	for _, c := range []struct {
		name, base, host, session, want string
		conflicts                       int
	}{
		{"apart", base, "one\n2\n3\n4\n5\n", "1\n2\n3\n4\nfive\n", "one\n2\n3\n4\nfive\n", 0},
		{"the same", base, "1\n2\nx\n4\n5\n", "1\n2\nx\n4\n5\n", "1\n2\nx\n4\n5\n", 0},
		{"the same lines", base, "1\n2\nx\n4\n5\n", "1\n2\ny\n4\n5\n", "1\n2\n<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n4\n5\n", 1},
		{"neighbours", base, "1\nx\n3\n4\n5\n", "1\n2\ny\n4\n5\n", "1\n<<<<<<< host\nx\n3\n=======\n2\ny\n>>>>>>> session\n4\n5\n", 1},
		{"removed and changed", base, "1\n2\n4\n5\n", "1\n2\ny\n4\n5\n", "1\n2\n<<<<<<< host\n=======\ny\n>>>>>>> session\n4\n5\n", 1},
		{"two places", base, "x\n2\n3\n4\nx\n", "y\n2\n3\n4\ny\n",
			"<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n2\n3\n4\n<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n", 2},
		{"added by both", "", "x\n", "y\n", "<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n", 1},
		{"no line end", "1\n2", "1\nx", "1\ny", "1\n<<<<<<< host\nx\n=======\ny\n>>>>>>> session\n", 1},
		{"the end kept open", "1\n2\n3\n4", "x\n2\n3\n4", "1\n2\n3\ny", "x\n2\n3\ny", 0},
		{"emptied", base, "", "1\n2\n3\n4\n5\n6\n", "<<<<<<< host\n=======\n1\n2\n3\n4\n5\n6\n>>>>>>> session\n", 1},
	} {
		got, conflicts := merge3(c.base, c.host, c.session)
		assert.Equal(t, c.want, got, c.name)
		assert.Equal(t, c.conflicts, conflicts, c.name)
	}
}

// TestAMergeLosesNothing merges random texts with few different lines, so that many are equal.
func TestAMergeLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"a\n", "b\n", "c\n", "\n", "d"})
		text := rapid.Map(rapid.SliceOfN(line, 0, 12), func(all []string) string { return strings.Join(all, "") })
		base, host, session := text.Draw(t, "base"), text.Draw(t, "host"), text.Draw(t, "session")
		equal := func(want, got string, conflicts int) {
			assert.Equal(t, want, got)
			assert.Zero(t, conflicts)
		}
		got, n := merge3(base, host, base)
		equal(host, got, n)
		got, n = merge3(base, base, session)
		equal(session, got, n)
		got, n = merge3(base, host, host)
		equal(host, got, n)
		merged, conflicts := merge3(base, host, session)
		assert.Equal(t, conflicts, strings.Count(merged, markSession))
		back, other := merge3(base, session, host)
		assert.Equal(t, conflicts, other, "the sides are alike")
		if conflicts == 0 {
			assert.Equal(t, merged, back)
			return
		}
		ours, theirs := side(merged, true), side(merged, false)
		for l := range strings.SplitSeq(host, "\n") {
			if !strings.Contains(base, l) {
				assert.Contains(t, ours, l)
			}
		}
		for l := range strings.SplitSeq(session, "\n") {
			if !strings.Contains(base, l) {
				assert.Contains(t, theirs, l)
			}
		}
	})
}

// side returns a merged text with one side of its conflicts.
func side(merged string, host bool) string {
	var out strings.Builder
	keep := true
	for line := range strings.Lines(merged) {
		switch line {
		case markHost:
			keep = host
		case markBetween:
			keep = !host
		case markSession:
			keep = true
		default:
			if keep {
				out.WriteString(line)
			}
		}
	}
	return out.String()
}
