package wisbox_test

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// echoing starts a server that echoes its input once its client has sent everything.
func echoing(t *testing.T) (port uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				said, _ := io.ReadAll(conn)
				_, _ = conn.Write(said)
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// runs creates the session's sandbox.
func runs(t *testing.T, s *wisbox.Session) {
	t.Helper()
	_, err := s.Run(t.Context(), sandbox.Cmd{Argv: []string{"true"}})
	require.NoError(t, err)
}

// TestDialReachesAProgram: each side may end its half first, whoever holds the session.
func TestDialReachesAProgram(t *testing.T) {
	port := echoing(t)
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		runs(t, s)
		conn, err := s.Dial(t.Context(), port)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
		require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(said))
		assert.Len(t, logged(t, s), 1, "it leaves no record")
	})
}

// TestDialSaysWhyThereIsNoConnection, and creates no sandbox to find out.
func TestDialSaysWhyThereIsNoConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	free := uint16(l.Addr().(*net.TCPAddr).Port)
	require.NoError(t, l.Close())
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		refused := func(port uint16, kind tool.Kind, says string) {
			_, err := s.Dial(t.Context(), port)
			assert.Equal(t, kind, tool.KindOf(err))
			assert.ErrorContains(t, err, says)
			assert.Equal(t, "port", tool.AsError(err).Field)
		}
		refused(free, tool.NotFound, "nothing listens")
		in, err := s.Inspect(t.Context())
		require.NoError(t, err)
		assert.Nil(t, in.Sandbox)
		runs(t, s)
		refused(free, tool.NotFound, "process_start")
		refused(0, tool.Invalid, "1 to 65535")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = s.Dial(ctx, free)
		assert.Equal(t, tool.Closed, tool.KindOf(err))
	})
}

// TestDialKeepsNoDescriptor of a closed connection, or of one whose caller has left.
func TestDialKeepsNoDescriptor(t *testing.T) {
	port := echoing(t)
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(all)
	}
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		runs(t, s)
		before := open()
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Microsecond)
			if i%2 == 0 {
				ctx = t.Context()
			}
			if conn, err := s.Dial(ctx, port); err == nil {
				require.NoError(t, conn.Close())
			}
			cancel()
		}
		assert.Eventually(t, func() bool { return open() <= before+10 }, 20*time.Second, 10*time.Millisecond)
	})
}

// TestAwaitEndEndsWithTheSession: with its close, its reset, and its caller.
func TestAwaitEndEndsWithTheSession(t *testing.T) {
	eachHost(t, wisbox.SessionOptions{}, func(t *testing.T, s *wisbox.Session) {
		await := func(ctx context.Context) <-chan error {
			ended, watching := make(chan error, 1), make(chan struct{})
			go func() { ended <- s.AwaitEnd(ctx, func() { close(watching) }) }()
			<-watching
			return ended
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := await(ctx)
		cancel()
		assert.Equal(t, tool.Closed, tool.KindOf(<-left))
		reset := await(t.Context())
		require.NoError(t, s.Reset(t.Context()))
		assert.Equal(t, tool.Closed, tool.KindOf(<-reset))
		closed := await(t.Context())
		require.NoError(t, s.Close(t.Context()))
		assert.Equal(t, tool.Closed, tool.KindOf(<-closed))
	})
}
