package lisp

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	_ "github.com/wisbox/wisbox/internal/properties"
)

func TestAStreamIsCutAtACharacterAndTheRestIsCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		said := rapid.String().Draw(t, "said")
		limit := rapid.IntRange(0, 20).Draw(t, "limit")
		h := &head{}
		for data := []byte(said); len(data) > 0; {
			n := rapid.IntRange(1, len(data)).Draw(t, "n")
			_, _ = h.Write(data[:n])
			data = data[n:]
		}
		got, all := h.excerpt(limit), utf8.RuneCountInString(said)
		assert.Equal(t, string([]rune(said)[:min(limit, all)]), got.Text)
		assert.Equal(t, int64(max(0, all-limit)), got.Dropped)
	})
}

func TestAnEndlessStreamCostsNoMemory(t *testing.T) {
	h, line := &head{}, make([]byte, 1<<20)
	for range 100 {
		_, _ = h.Write(line)
	}
	assert.LessOrEqual(t, len(h.kept), utf8.UTFMax*maxOutput)
	got := h.excerpt(10)
	assert.Equal(t, int64(100<<20-10), got.Dropped)
}
