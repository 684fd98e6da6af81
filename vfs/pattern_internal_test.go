package vfs

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

func TestPatternsThatCostMuchToCompileAreRefused(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat(`[^x]`, 250), strings.Repeat(`\PL`, 300), strings.Repeat(`\pL{1000}`, 6), `(a{1000}){1000}`, `a{1000}{1000}`,
		strings.Repeat("(", 999),
	} {
		_, err := compileLines(pattern, true)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), pattern[:10])
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := compileLines("(?:"+strings.Repeat("a?", 490)+"){1000}", false)
	runtime.ReadMemStats(&after)
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20), "its million instructions are counted, and not made")
	for _, pattern := range []string{`\pL{1000}`, `(\pL\pN){100}`, `[^x]{1000}`, `[a-z]{50}\d+`} {
		p, err := compileLines(pattern, false)
		require.NoError(t, err, pattern)
		assert.Less(t, len(p.std.String()), 20_000, "%s: a repetition is written once", pattern)
	}
}
