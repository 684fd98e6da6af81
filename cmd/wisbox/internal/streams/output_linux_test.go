package streams

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hold"
)

// ends returns the two ends of a unix socket.
func ends(t *testing.T) (here, there net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conns[i], err = net.FileConn(f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return conns[0], conns[1]
}

// piped returns an output to a pipe, the pipe's other end, and the context that ends with the
// command.
func piped(t *testing.T) (to hold.Mover, out *os.File, ctx context.Context) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	ctx, end := context.WithCancelCause(t.Context())
	to, ok := NewOutput(in, end).(hold.Mover)
	require.True(t, ok)
	return to, out, ctx
}

func TestAPipeTakesWhatComesFromASocket(t *testing.T) {
	here, there := ends(t)
	to, out, _ := piped(t)
	sent := make([]byte, 9<<20+7)
	_, _ = rand.Read(sent)
	go func() { _, _ = there.Write(sent) }()
	go func() {
		for left := int64(len(sent)); left > 0; {
			piece := min(left, 100_003)
			from := &io.LimitedReader{R: here, N: piece}
			if !assert.NoError(t, to.MoveFrom(from)) || !assert.Zero(t, from.N) {
				return
			}
			left -= piece
		}
	}()
	got := sha256.New()
	_, err := io.CopyBuffer(got, io.LimitReader(struct{ io.Reader }{out}, int64(len(sent))), make([]byte, 7001))
	require.NoError(t, err)
	want := sha256.Sum256(sent)
	assert.Equal(t, want[:], got.Sum(nil))
}

func TestAPipeWithoutAReaderEndsTheCommand(t *testing.T) {
	here, there := ends(t)
	to, out, ctx := piped(t)
	require.NoError(t, out.Close())
	_, _ = there.Write([]byte("nobody reads this, next"))
	from := &io.LimitedReader{R: here, N: 19}
	require.ErrorIs(t, to.MoveFrom(from), syscall.EPIPE)
	<-ctx.Done()
	assert.Equal(t, Signalled{syscall.SIGPIPE}, context.Cause(ctx))
	rest := make([]byte, from.N+4)
	_, err := io.ReadFull(here, rest)
	require.NoError(t, err)
	assert.Equal(t, "next", string(rest[from.N:]), "what comes behind is untouched")
}

func TestAFullPipeDoesNotKeepAConnectionOpen(t *testing.T) {
	here, there := ends(t)
	to, out, _ := piped(t)
	go func() { _, _ = there.Write(make([]byte, 4<<20)) }()
	done := make(chan error, 1)
	go func() {
		done <- to.MoveFrom(&io.LimitedReader{R: here, N: 4 << 20})
	}()
	first := make([]byte, 1)
	_, err := out.Read(first) // it has begun, and nobody reads the rest
	require.NoError(t, err)
	require.NoError(t, here.Close())
	go func() { _, _ = io.Copy(io.Discard, out) }()
	assert.ErrorIs(t, <-done, net.ErrClosed)
}

func TestAPipeTakesOtherInputsToo(t *testing.T) {
	to, out, _ := piped(t)
	require.NoError(t, to.MoveFrom(&io.LimitedReader{R: bytes.NewReader([]byte("text")), N: 3}))
	got := make([]byte, 3)
	_, err := io.ReadFull(out, got)
	require.NoError(t, err)
	assert.Equal(t, "tex", string(got))
}
