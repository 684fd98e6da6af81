package evaltool

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNamesAreThoseOfPython(t *testing.T) {
	for _, name := range []string{"x", "_", "_x1", "X", "nämé", "переменная", "变量", "x\u0301", "match", "__x", "x__", "print"} {
		assert.True(t, isIdentifier(name), name)
	}
	for _, name := range []string{
		"", "1x", "x y", "x-y", "x.y", "x\n", "\u00a0x", "é!", "\u0301", "€", "😀", "class", "None", "__x__", "____",
		"ﬁ", "ａ", "ℵ", "\xff", "x²", "\x00", // Python stores the first three under another name
	} {
		assert.False(t, isIdentifier(name), "%q", name)
	}
}
