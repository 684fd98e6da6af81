package interp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func newBuffer() *bytes.Buffer { return &bytes.Buffer{} }

func TestMarksCutAStreamHoweverItArrives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMarked(newBuffer)
		for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
			mark := fmt.Sprintf("mark%028d", i)
			said := rapid.StringOf(rapid.RuneFrom([]rune("mark0\n"))).Draw(t, "said")
			m.begin(mark)
			for data := []byte(said + mark); len(data) > 0; {
				n := rapid.IntRange(1, len(data)).Draw(t, "n")
				_, _ = m.Write(data[:n])
				data = data[n:]
			}
			<-m.reached()
			assert.Equal(t, said, m.take().String())
		}
	})
}

func TestTheTextWithoutItsMarkIsNotLost(t *testing.T) {
	m := newMarked(newBuffer)
	m.begin(strings.Repeat("m", 32))
	_, _ = m.Write([]byte("said mm"))
	assert.Equal(t, "said mm", m.take().String())
	_, _ = m.Write([]byte("late"))
	m.begin("x")
	assert.Equal(t, "late", m.take().String())
}
