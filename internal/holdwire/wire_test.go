package holdwire_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/holdwire"
)

func pair(t *testing.T) (*holdwire.Conn, *holdwire.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return holdwire.New(a), holdwire.New(b)
}

func TestStreamsArriveInChunksAndInOrder(t *testing.T) {
	a, b := pair(t)
	sent := bytes.Repeat([]byte("0123456789"), 20_000)
	go func() {
		_, _ = a.Writer(holdwire.Stdout).Write(sent)
		_ = a.SendJSON(holdwire.Answer, map[string]int{"exit_code": 3})
	}()
	var got bytes.Buffer
	for {
		kind, payload, err := b.Receive()
		require.NoError(t, err)
		if kind == holdwire.Answer {
			assert.JSONEq(t, `{"exit_code":3}`, string(payload))
			break
		}
		require.Equal(t, holdwire.Stdout, kind)
		require.LessOrEqual(t, len(payload), holdwire.ChunkSize)
		got.Write(payload)
	}
	assert.Equal(t, sent, got.Bytes())
}

func TestOversizedFramesAreRefusedByBothEnds(t *testing.T) {
	a, b := pair(t)
	require.ErrorContains(t, a.Send(holdwire.Answer, make([]byte, holdwire.MaxFrame+1)), "limit")
	go func() { _, _ = a.Write([]byte{byte(holdwire.Answer), 0xff, 0xff, 0xff, 0xff}) }()
	_, _, err := b.Receive()
	require.ErrorContains(t, err, "limit")
}

func TestACutFrameIsAnUnexpectedEnd(t *testing.T) {
	a, b := pair(t)
	go func() {
		_, _ = a.Write([]byte{byte(holdwire.Stdin), 0, 0, 0, 9, 'x'})
		_ = a.Close()
	}()
	_, _, err := b.Receive()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
