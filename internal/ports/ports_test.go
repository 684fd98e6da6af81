package ports_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wisbox/wisbox/internal/ports"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server stands for a program of the session.
func server(t *testing.T, serve func(*net.TCPConn)) ports.Dial {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			})
		}
	})
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}
}

func echo(conn *net.TCPConn) {
	said, _ := io.ReadAll(conn)
	_, _ = conn.Write(said)
}

// forwarded returns a socket that is forwarded to dial, until the test ends or end is called.
func forwarded(t *testing.T, dial ports.Dial, failed func(error)) (addr net.Addr, end func()) {
	t.Helper()
	var l net.Listener
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return forwardedAt(t, l, dial, failed)
}

func forwardedAt(t *testing.T, l net.Listener, dial ports.Dial, failed func(error)) (addr net.Addr, end func()) {
	t.Helper()
	if failed == nil {
		failed = func(err error) { t.Error(err) }
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ports.Forward(ctx, l, dial, failed) }()
	end = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(end)
	return l.Addr(), end
}

// TestBothHalvesOfAConnectionArePassedOn over TCP and over a unix socket.
func TestBothHalvesOfAConnectionArePassedOn(t *testing.T) {
	dial := server(t, echo)
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	require.NoError(t, err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for _, l := range []net.Listener{unix, tcp} {
		addr, _ := forwardedAt(t, l, dial, nil)
		conn, err := net.Dial(addr.Network(), addr.String())
		require.NoError(t, err)
		sent := make([]byte, 3<<20)
		go func() {
			_, _ = conn.Write(sent)
			_ = conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Len(t, got, len(sent))
		require.NoError(t, conn.Close())
	}
}

// TestABrokenConnectionIsNoWholeOne: its client sees a reset instead of an end.
func TestABrokenConnectionIsNoWholeOne(t *testing.T) {
	dial := server(t, func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("half"))
		_, _ = io.ReadFull(conn, make([]byte, 1))
		_ = conn.SetLinger(0)
	})
	addr, _ := forwarded(t, dial, nil)
	conn, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 4))
	require.NoError(t, err)
	_, err = conn.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadAll(conn)
	require.Error(t, err)
}

// TestWhereNothingListensTheConnectionEnds, and says why; the next one is served.
func TestWhereNothingListensTheConnectionEnds(t *testing.T) {
	why := errors.New("nothing listens")
	var refuse atomic.Bool
	refuse.Store(true)
	dial := server(t, echo)
	told := make(chan error, 1)
	addr, _ := forwarded(t, func(ctx context.Context) (net.Conn, error) {
		if refuse.Load() {
			return nil, why
		}
		return dial(ctx)
	}, func(err error) { told <- err })
	conn, err := net.Dial("tcp", addr.String())
	if err == nil { // otherwise it ended at once
		_, err = io.ReadAll(conn)
		conn.Close()
	}
	require.Error(t, err)
	require.ErrorIs(t, <-told, why)
	refuse.Store(false)
	conn, err = net.Dial("tcp", addr.String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
}

// TestAFloodGetsNoFurtherThanItsBound, and the ends of its connections make room again.
func TestAFloodGetsNoFurtherThanItsBound(t *testing.T) {
	var open, most atomic.Int64
	dial := server(t, func(conn *net.TCPConn) {
		now := open.Add(1)
		for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
		}
		defer open.Add(-1)
		_, _ = conn.Write([]byte("!"))
		_, _ = io.Copy(io.Discard, conn)
	})
	addr, _ := forwarded(t, dial, nil)
	var clients []net.Conn
	for range ports.MaxConns + 50 {
		conn, err := net.Dial("tcp", addr.String())
		require.NoError(t, err)
		clients = append(clients, conn)
	}
	for _, conn := range clients[:ports.MaxConns] {
		_, err := io.ReadFull(conn, make([]byte, 1))
		require.NoError(t, err)
	}
	assert.Equal(t, int64(ports.MaxConns), most.Load())
	for _, conn := range clients[:ports.MaxConns] {
		conn.Close()
	}
	for _, conn := range clients[ports.MaxConns:] {
		_, err := io.ReadFull(conn, make([]byte, 1))
		require.NoError(t, err, "those that waited are served")
		conn.Close()
	}
	assert.Eventually(t, func() bool { return open.Load() == 0 }, 30*time.Second, time.Millisecond)
}

// TestTheEndOfAForwardEndsItsConnections: neither side is left.
func TestTheEndOfAForwardEndsItsConnections(t *testing.T) {
	gone := make(chan struct{})
	dial := server(t, func(conn *net.TCPConn) {
		_, _ = conn.Write([]byte("!"))
		_, _ = io.Copy(io.Discard, conn)
		close(gone)
	})
	addr, end := forwarded(t, dial, nil)
	conn, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err)
	end()
	_, err = io.ReadAll(conn)
	require.Error(t, err)
	<-gone
	_, err = net.Dial("tcp", addr.String())
	require.Error(t, err)
}
