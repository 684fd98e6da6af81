package pathname_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/pathname"
)

func TestTextIsWhatAReaderSees(t *testing.T) {
	for _, s := range []string{"", "a b", "straße", "日本語", "e\u0301", "é", "👩\u200d💻", "می\u200cخواهم", "．．", "a\u3000b", "✂\ufe0e", "✂\ufe0f", "a\ufe10", "a\u2801", "🏳️\u200d🌈"} {
		assert.True(t, pathname.Text(s), "%q", s)
	}
	for _, s := range []string{
		"a\nb", "a\x00", "\x1b[1m", "a\x7f", "a\u0085b", "\x9b", "caf\xe9", "\xed\xa0\x80", "a\u202etxt", "a\u2066b", "a\u200fb", "a\u061cb",
		"a\u200bb", "a\u2060b", "\ufeffa", "a\u00adb", "a\u2028b", "a\u2029b", "a\U000e0041", "a\ufffdb", "a\u3164b", "\u115f",
		"a\ufe00", "a\ufe0d", "a\U000e0100", "a\U000e01ef", "a\u034f", "a\u17b4", "a\u17b5", "a\u180b", "a\u180d", "a\u180e", "a\u180f", "a\u2065",
		"a\U000e0000", "a\U000e0fff", "a\ufff0", "a\ufff8", "a\u2800",
	} {
		assert.False(t, pathname.Text(s), "%q", s)
	}
}

func TestASCIIIsPrintable(t *testing.T) {
	assert.True(t, pathname.ASCII(" ~a"))
	for _, s := range []string{"\t", "\x7f", "é", "\x00", "\xff"} {
		assert.False(t, pathname.ASCII(s), "%q", s)
	}
}
