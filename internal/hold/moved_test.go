package hold_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
)

// taker takes a number of bytes of output from the connection itself, then fails.
type taker struct {
	bytes.Buffer
	most  int64
	moved int
}

func (t *taker) MoveFrom(from *io.LimitedReader) error {
	t.moved++
	n, err := t.Buffer.ReadFrom(io.LimitReader(from, t.most))
	t.most -= n
	if err == nil && t.most == 0 {
		err = errors.New("its reader is gone")
	}
	return err
}

// answer plays a holder's part of one operation with output.
func answer(c *hold.Conn) {
	defer c.Close()
	_, _, _ = c.Receive()
	_ = c.Send(hold.FrameTaken, []byte(hold.Version))
	_, _ = c.Writer(hold.FrameStdout).Write(make([]byte, 300_000))
	_, _ = c.Writer(hold.FrameStdout).Write([]byte("end"))
	_ = c.SendJSON(hold.FrameAnswer, "done")
}

// TestAWriterTakesOutputFromTheConnection: if the writer fails in the middle of a frame, the answer
// arrives all the same.
func TestAWriterTakesOutputFromTheConnection(t *testing.T) {
	for _, most := range []int64{1 << 30, 100_000} {
		client := &hold.Client{Dial: func(context.Context) (*hold.Conn, error) {
			near, far := net.Pipe()
			go answer(hold.NewConn(far))
			return hold.NewConn(near), nil
		}}
		to := &taker{most: most}
		var answer string
		require.NoError(t, client.Do(t.Context(), hold.Request{Op: "x", Ack: true}, hold.Streams{Stdout: to}, &answer))
		assert.Equal(t, "done", answer)
		assert.Equal(t, 3, to.moved, "small frames are written")
		assert.Equal(t, int(min(most, 300_000))+len("end"), to.Len())
	}
}

// TestAFileThatTakesNothing tests an output that a user of the library may pass: its own splice
// would lose bytes that it can't write, and with them the answer.
func TestAFileThatTakesNothing(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, out.Close())
	defer in.Close()
	for _, to := range []*os.File{full, in} {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		require.NoError(t, err)
		client := &hold.Client{Dial: func(context.Context) (*hold.Conn, error) {
			go func() {
				if far, err := l.Accept(); err == nil {
					answer(hold.NewConn(far))
				}
			}()
			return hold.On(net.Dial("unix", l.Addr().String()))
		}}
		var got string
		require.NoError(t, client.Do(t.Context(), hold.Request{Op: "x", Ack: true}, hold.Streams{Stdout: to}, &got))
		assert.Equal(t, "done", got)
		require.NoError(t, l.Close())
	}
}
