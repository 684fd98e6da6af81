package audit_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/audit"
)

// TestTheLastRecords compares Last with the end of all records, for lines of any length and any
// number of files.
func TestTheLastRecords(t *testing.T) {
	b := newBench(t)
	last := func(n int) (numbers []int) {
		require.NoError(t, audit.Last(b.root, name, n, func(line []byte) error {
			var r struct{ N int }
			require.NoError(t, json.Unmarshal(line, &r))
			numbers = append(numbers, r.N)
			return nil
		}))
		return numbers
	}
	assert.Empty(t, last(3), "no log at all")
	b.write(1, 2000)
	l, err := audit.Open(b.root, name, nil)
	require.NoError(t, err)
	require.NoError(t, l.Append(map[string]any{"n": 2001, "text": strings.Repeat("x", 200<<10)}))
	require.NoError(t, l.Close())
	b.write(2002, 2003)
	assert.Equal(t, []int{2003}, last(1))
	assert.Equal(t, []int{2000, 2001, 2002, 2003}, last(4))
	assert.Empty(t, last(0))
	all := last(5000)
	require.Len(t, all, 2003)
	for i, n := range all {
		require.Equal(t, i+1, n)
	}

	require.NoError(t, os.Rename(b.path, b.path+".1"))
	b.write(2004, 2005)
	assert.Equal(t, []int{2002, 2003, 2004, 2005}, last(4))
	b.change(func(lines []string) []string { return append(lines, "\nnonsense\n", `{"seq":9,"pr`) })
	assert.Equal(t, []int{2004, 2005}, last(2), "what is not a record doesn't count")
}
