package rlm

import (
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/budget"
	"github.com/wisbox/wisbox/tool"
)

// TestGrepIsTheSameByEveryEngine compares the searches of small and large texts with the plain
// search, line by line, over several blocks.
func TestGrepIsTheSameByEveryEngine(t *testing.T) {
	lines := []string{"", "alpha 12", "beta\r", "ERROR at 7: é", "x\ty", "error", "aaa", "日本 12 alpha", "$", "end."}
	var b strings.Builder
	for i := 0; b.Len() < 50_000; i++ {
		b.WriteString(lines[(i*7+i/13)%len(lines)])
		b.WriteByte('\n')
	}
	text := b.String()
	for _, pattern := range []string{"", "alpha", "ERROR.*7", "(?i)error", `\d+`, `^$`, `\s`, `\Aa+\z`, `[^a-z]$`, `x?`, `(?s)a.*`, `\bERROR\b|日`, `^[^\d]*$`} {
		re := regexp.MustCompile(pattern)
		var want []string
		for line := range strings.SplitSeq(text, "\n") {
			if re.MatchString(line) {
				want = append(want, line)
			}
		}
		m, err := newMatcher(pattern)
		require.NoError(t, err)
		for _, piece := range []int{1, 7, m.piece} { // long lines, too
			m.piece = piece
			got, err := grep(text, m, unbounded(t))
			require.NoError(t, err)
			require.True(t, strings.Join(want, "\n") == got, "pattern %q, pieces of %d", pattern, piece)
		}
	}
}

func TestBlocksHoldWholeLinesAndAllOfThem(t *testing.T) {
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", 30_000) + strings.Repeat("y", 3*blockSize)
	at := 0
	for _, block := range cutBlocks(text) {
		require.Equal(t, at, block.from)
		require.True(t, block.to == len(text) || text[block.to] == '\n')
		at = block.to + 1
	}
	require.Equal(t, len(text)+1, at)
	m, err := newMatcher("x")
	require.NoError(t, err)
	got, err := grep(text, m, unbounded(t))
	require.NoError(t, err)
	require.Equal(t, 30_000-1, strings.Count(got, "\n"))
}

func unbounded(t *testing.T) *budget.Budget {
	b := budget.New(t.Context(), budget.Limits{})
	t.Cleanup(b.Close)
	return b
}

func TestALargePatternIsRefusedBeforeItIsMade(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := newMatcher("(?:" + strings.Repeat("a?", 490) + "){1000}")
	runtime.ReadMemStats(&after)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "its million instructions are counted, and not made")
}
