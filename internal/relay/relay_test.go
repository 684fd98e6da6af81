package relay_test

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns the ends of a connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// joined returns the outer ends of two joined connections.
func joined(t *testing.T) (a, b *net.TCPConn, ended chan struct{}) {
	t.Helper()
	a, near := pair(t)
	far, b := pair(t)
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		relay.Join(near, far)
	}()
	return a, b, ended
}

// TestAnEndGoesOnAsAnEnd, and later data in the other direction still arrives.
func TestAnEndGoesOnAsAnEnd(t *testing.T) {
	a, b, ended := joined(t)
	_, err := io.WriteString(a, "question")
	require.NoError(t, err)
	require.NoError(t, a.CloseWrite())
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.Equal(t, "question", string(got))
	_, err = io.WriteString(b, "answer")
	require.NoError(t, err)
	require.NoError(t, b.CloseWrite())
	got, err = io.ReadAll(a)
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	<-ended
}

// TestAResetGoesOnAsAReset to both ends.
func TestAResetGoesOnAsAReset(t *testing.T) {
	a, b, ended := joined(t)
	_, err := io.WriteString(a, "half")
	require.NoError(t, err)
	_, err = io.ReadFull(b, make([]byte, 4))
	require.NoError(t, err)
	relay.Reset(a)
	_, err = io.ReadAll(b)
	require.Error(t, err)
	<-ended
}
