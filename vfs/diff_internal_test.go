package vfs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
)

// patched applies a patch to text.
func patched(t require.TestingT, text, diff string) string {
	old := strings.SplitAfter(text, "\n")
	var out strings.Builder
	at, to := 0, 0 // lines taken, lines written
	lines := strings.SplitAfter(diff, "\n")[2:]
	for i, line := range lines {
		kind, content := line[:min(1, len(line))], strings.TrimPrefix(line, line[:min(1, len(line))])
		if i+1 < len(lines) && strings.HasPrefix(lines[i+1], `\ No newline`) {
			content = strings.TrimSuffix(content, "\n")
		}
		switch kind {
		case "@":
			var from, into string
			_, err := fmt.Sscanf(line, "@@ -%s +%s @@", &from, &into)
			require.NoError(t, err, line)
			start, n := 0, 1
			if _, err := fmt.Sscanf(from, "%d,%d", &start, &n); err != nil {
				_, err = fmt.Sscanf(from, "%d", &start)
				require.NoError(t, err)
			}
			if n == 0 {
				start++
			}
			for ; at < start-1; at++ {
				out.WriteString(old[at])
				to++
			}
			begin, m := 0, 1
			if _, err := fmt.Sscanf(into, "%d,%d", &begin, &m); err != nil {
				_, err = fmt.Sscanf(into, "%d", &begin)
				require.NoError(t, err)
			}
			if m == 0 {
				begin++
			}
			require.Equal(t, begin-1, to, diff)
		case " ", "-":
			require.Equal(t, old[at], content, diff)
			at++
			if kind == " " {
				out.WriteString(content)
				to++
			}
		case "+":
			out.WriteString(content)
			to++
		}
	}
	for ; at < len(old); at++ {
		out.WriteString(old[at])
	}
	return out.String()
}

func TestADiffIsThePatchOfItsEdit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab\n]{1,60}(\n\n\n\n\n\n\n\n[ab\n]{0,20}){0,2}`).Draw(t, "text")
		from := rapid.IntRange(0, len(text)-1).Draw(t, "from")
		p := editParams{
			OldString: text[from:rapid.IntRange(from+1, min(from+4, len(text))).Draw(t, "to")],
			NewString: rapid.StringMatching(`[abc\n]{0,4}`).Draw(t, "new"), ReplaceAll: true,
		}
		at, n, err := matches(text, p)
		require.NoError(t, err)
		diff := unified("f", text, at, n, p)
		require.Equal(t, strings.ReplaceAll(text, p.OldString, p.NewString), patched(t, text, diff), diff)
	})
}

// TestADiffOfAHugeFileCostsLittle uses files of 8 MiB: empty lines, a single line, and one that is
// completely replaced.
func TestADiffOfAHugeFileCostsLittle(t *testing.T) {
	for name, text := range map[string]string{
		"empty lines": strings.Repeat("\n", 8<<20-100) + strings.Repeat("x\n", 50), "one line": strings.Repeat("x", 8<<20),
		"short lines": strings.Repeat("x\n", 4<<20),
	} {
		p := editParams{OldString: "x", NewString: "y", ReplaceAll: true}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		at, n, err := matches(text, p)
		require.NoError(t, err)
		assert.Less(t, len(unified("f", text, at, n, p)), 64<<10)
		runtime.ReadMemStats(&after)
		assert.Equal(t, strings.Count(text, "x"), n, name)
		assert.LessOrEqual(t, len(at), diffEdits)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(40<<20), name)
	}
}
