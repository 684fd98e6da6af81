package plumbing

import (
	"bufio"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// endless is a tree with one name that doesn't end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, strings.Repeat("x", len(p))), nil
}

func TestALongNameOfATreeIsNotReadWhole(t *testing.T) {
	e := &endless{}
	_, err := readEntries(bufio.NewReaderSize(e, longestPath), func(string, string) bool { return true })
	require.ErrorIs(t, err, bufio.ErrBufferFull)
	assert.LessOrEqual(t, e.read, 2*longestPath)

	found, err := readEntries(bufio.NewReaderSize(strings.NewReader("100644 blob abc\ta b\x00120000 blob def\tl\x00"), longestPath), func(_, mode string) bool { return mode == "120000" })
	require.NoError(t, err)
	assert.Equal(t, map[string]Entry{"l": {"120000", "def"}}, found)
}
