package hold_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
)

func pair(t *testing.T) (*hold.Conn, *hold.Conn) {
	a, b := net.Pipe()
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return hold.NewConn(a), hold.NewConn(b)
}

func TestStreamsArriveInChunksAndInOrder(t *testing.T) {
	a, b := pair(t)
	sent := bytes.Repeat([]byte("0123456789"), 20_000)
	go func() {
		_, _ = a.Writer(hold.FrameStdout).Write(sent)
		_ = a.SendJSON(hold.FrameAnswer, map[string]int{"exit_code": 3})
	}()
	var got bytes.Buffer
	for {
		kind, payload, err := b.Receive()
		require.NoError(t, err)
		if kind == hold.FrameAnswer {
			assert.JSONEq(t, `{"exit_code":3}`, string(payload))
			break
		}
		require.Equal(t, hold.FrameStdout, kind)
		require.LessOrEqual(t, len(payload), hold.ChunkSize)
		got.Write(payload)
	}
	assert.Equal(t, sent, got.Bytes())
}

func TestOversizedFramesAreRefusedByBothEnds(t *testing.T) {
	a, b := pair(t)
	require.ErrorContains(t, a.Send(hold.FrameAnswer, make([]byte, hold.MaxFrame+1)), "limit")
	go func() { _, _ = a.Write([]byte{byte(hold.FrameAnswer), 0xff, 0xff, 0xff, 0xff}) }()
	_, _, err := b.Receive()
	require.ErrorContains(t, err, "limit")
}

func TestACutFrameIsAnUnexpectedEnd(t *testing.T) {
	a, b := pair(t)
	go func() {
		_, _ = a.Write([]byte{byte(hold.FrameStdin), 0, 0, 0, 9, 'x'})
		_ = a.Close()
	}()
	_, _, err := b.Receive()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
