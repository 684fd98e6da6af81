package oneline

import (
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
)

func newFinder(t require.TestingT, pattern string) (*Finder, *regexp.Regexp) {
	tree, err := syntax.Parse(pattern, syntax.Perl)
	require.NoError(t, err)
	Rewrite(tree)
	program, err := syntax.Compile(tree.Simplify())
	require.NoError(t, err)
	std := regexp.MustCompile(tree.String())
	return NewFinder(std, program), std
}

func lines(f *Finder, text string) (found []string) {
	for from := 0; from <= len(text); {
		start, end := f.Line(text[from:])
		if start < 0 {
			break
		}
		found = append(found, text[from+start:from+end])
		from += end + 1
	}
	return found
}

func TestAFinderFindsTheLinesThatPackageRegexpFinds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		pattern := rapid.SampledFrom([]string{
			"", `\d+`, `[a-f]{2}\d`, `^$`, `\s`, `\Aa+\z`, `[^a-z]$`, `x?`, `(?s)a.*b`, `(?i)[k-s]é?`, `\bé|\B日`, `^[^\d]*$`, `\pL+\d`, `(?i:ſ)|[[:upper:]]`, `.{3}`, `(a|b)*a(a|b){3}`, `\x00|[\x80-\xff]`,
		}).Draw(r, "pattern")
		pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"ab", "ba", "\n", " ", "é", "K", "xx", "F", "o", "\r\n", "12", "\xff", "ſ", "\n\n", "\x00", "日", strings.Repeat("long ", 600), strings.Repeat("a\n", 1200)}), 0, 60)
		text := strings.Join(pieces.Draw(r, "text"), "")
		f, std := newFinder(t, pattern)
		var want []string
		for line := range strings.SplitSeq(text, "\n") {
			if std.MatchString(line) {
				want = append(want, line)
			}
		}
		require.Equal(r, want, lines(f, text))
	})
}

// The number of an automaton's states may be exponential in the length of its pattern.
func TestAFinderHasABoundedNumberOfStates(t *testing.T) {
	f, std := newFinder(t, `[ab]*a[ab]{14}c`)
	var b strings.Builder
	for x := uint32(1); b.Len() < 1<<20; x = x*1664525 + 1013904223 {
		b.WriteByte("ab"[x>>31])
		if x>>16&63 == 0 {
			b.WriteByte('\n')
		}
	}
	b.WriteString("\n" + strings.Repeat("a", 15) + "c\nb")
	require.Equal(t, []string{strings.Repeat("a", 15) + "c"}, lines(f, b.String()))
	require.Greater(t, f.known.Len(), maxStates, "the pattern has many states")
	require.Less(t, f.known.Len(), maxStates+2*pieceSize)
	require.True(t, std.MatchString(strings.Repeat("a", 15)+"c"))
}

func TestALargeProgramIsRefusedBeforeItIsMade(t *testing.T) {
	for _, pattern := range []string{
		"(?:" + strings.Repeat("a", 980) + "){1000}", "(?:" + strings.Repeat("a?", 490) + "){1000}", "(?:" + strings.Repeat(`\w`, 490) + "){0,1000}",
		"(" + strings.Repeat("(a|bc)*", 140) + "){999,}", "(?:(?:(?:" + strings.Repeat("a", 900) + "){10}){10}){10}",
	} {
		tree, err := syntax.Parse(pattern, syntax.Perl)
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, ok := Compile(tree)
		runtime.ReadMemStats(&after)
		require.False(t, ok, pattern[:10])
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), pattern[:10])
	}
}

func TestTheEstimateOfAProgramIsNearIt(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "abc", `\w`, `[^x]`, "(?:ab|c|)", "(a)", "^", "$", `\b`, ".", "", "(?i)k", "(?:)"})
	times := rapid.SampledFrom([]string{"", "*", "+", "?", "{0}", "{1}", "{3}", "{2,}", "{0,4}", "{0,1}", "{3,9}", "{0,}"})
	rapid.Check(t, func(r *rapid.T) {
		var pattern string
		for range rapid.IntRange(1, 4).Draw(r, "depth") {
			for range rapid.IntRange(0, 4).Draw(r, "length") {
				pattern += "(?:" + piece.Draw(r, "piece") + ")" + times.Draw(r, "times")
			}
			pattern = "(?:" + pattern + ")" + times.Draw(r, "times")
		}
		tree, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return // repeated too often
		}
		program, err := syntax.Compile(tree.Simplify())
		require.NoError(r, err)
		const around = 3 // instructions that every program has
		require.LessOrEqual(r, size(tree), 4*len(program.Inst)+MaxProgram, pattern)
		require.LessOrEqual(r, len(program.Inst), 2*size(tree)+around, pattern)
	})
}
