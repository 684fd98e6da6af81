package interp

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatComesBetweenTwoCallsBelongsToTheNext(t *testing.T) {
	o := newOutput(func() *bytes.Buffer { return &bytes.Buffer{} })
	_, _ = o.Write([]byte("one"))
	assert.Equal(t, "one", o.take().String())
	_, _ = o.Write([]byte("late "))
	_, _ = o.Write([]byte("two"))
	assert.Equal(t, "late two", o.take().String())
	assert.Empty(t, o.take().String())
}
