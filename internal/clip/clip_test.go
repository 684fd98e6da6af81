package clip_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/internal/clip"
)

func TestACharacterIsNeverCut(t *testing.T) {
	assert.Equal(t, "ä", clip.To("äöü", 3))
	assert.Equal(t, "äö", clip.To("äöü", 4))
	assert.Equal(t, "äöü", clip.To("äöü", 6))
	assert.Empty(t, clip.To("ä", 1))
}

func TestWordsInAMessageAreShort(t *testing.T) {
	assert.Equal(t, "ä", clip.Words("ä"))
	assert.Equal(t, strings.Repeat("ä", 80), clip.Words(strings.Repeat("ä", 80)))
	assert.Equal(t, strings.Repeat("ä", 80)+"…", clip.Words(strings.Repeat("ä", 81)))
}
