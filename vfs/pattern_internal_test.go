package vfs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool"
)

func TestPatternsThatCostMuchToCompileAreRefusedOrKeptFromRE2(t *testing.T) {
	for _, pattern := range []string{
		strings.Repeat(`[^x]`, 250), strings.Repeat(`\PL`, 300), strings.Repeat(`\pL{1000}`, 6), `(a{1000}){1000}`, `a{1000}{1000}`,
		strings.Repeat("(", 999),
	} {
		_, err := compileLines(pattern, true)
		assert.Equal(t, tool.Invalid, tool.KindOf(err), pattern[:10])
	}
	for pattern, re2 := range map[string]bool{
		`\pL{1000}`: false, `(\pL\pN){100}`: false, `[^x]{1000}`: false, `[a-z]{50}\d+`: true, `\w+\s\w*`: true, `[^x]{10}`: true, `\pL+\d`: true,
	} {
		p, err := compileLines(pattern, false)
		require.NoError(t, err, pattern)
		assert.Equal(t, re2, p.re2 != nil, pattern)
		assert.Less(t, len(p.std.String()), 20_000, "%s: a repetition is written once", pattern)
	}
}
