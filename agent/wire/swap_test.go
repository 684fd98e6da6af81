package wire_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/wire"
)

// TestASwappedPayloadStaysAsItIs: the frames after it are read into other memory.
func TestASwappedPayloadStaysAsItIs(t *testing.T) {
	var stream []byte
	for _, text := range []string{"first", "other", "third"} {
		stream = wire.Append(stream, wire.Data, 1, []byte(text))
	}
	r := wire.NewReader(bytes.NewReader(stream))
	var kept []byte
	for _, want := range []string{"first", "other", "third"} {
		f, err := r.Next()
		require.NoError(t, err)
		assert.Equal(t, want, string(f.Payload))
		if kept == nil {
			kept = r.Swap(make([]byte, 0, 2))
		}
	}
	assert.Equal(t, "first", string(kept))
}
