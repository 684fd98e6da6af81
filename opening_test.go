package wisbox

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestATemplatesProgramFillsNoMemory: its /bin/sh may write without end.
func TestATemplatesProgramFillsNoMemory(t *testing.T) {
	var said opening
	for range 3 {
		n, err := io.Copy(&said, bytes.NewReader(make([]byte, maxSaid-1)))
		require.NoError(t, err)
		assert.EqualValues(t, maxSaid-1, n)
	}
	assert.Len(t, said.text, maxSaid)
}
