package agent_test

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// halves is a connection whose directions end apart.
type halves interface {
	net.Conn
	CloseWrite() error
}

// carried is a connection of a program, which is this process too, that is carried.
func carried(t *testing.T, f *fixture) (host halves, program *net.TCPConn) {
	t.Helper()
	l, err := f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })
	require.Equal(t, conn.LocalAddr().String(), accepted.RemoteAddr().String())
	return accepted.(halves), conn.(*net.TCPConn)
}

func reset(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.(interface{ Reset() error }).Reset())
}

// TestCarriedConnectionsKeepEveryByte, both ways, of many at once, and each half's end.
func TestCarriedConnectionsKeepEveryByte(t *testing.T) {
	f := start(t)
	var all sync.WaitGroup
	for range 8 {
		host, program := carried(t, f)
		for from, to := range map[halves]halves{host: program, program: host} {
			sent := make([]byte, 3<<20)
			for i := range sent {
				sent[i] = byte(rand.Uint32())
			}
			all.Go(func() {
				for rest := sent; len(rest) > 0; {
					n := min(len(rest), 1+rand.IntN(200_000))
					_, err := from.Write(rest[:n])
					assert.NoError(t, err)
					rest = rest[n:]
				}
				assert.NoError(t, from.CloseWrite())
			})
			all.Go(func() {
				got, err := io.ReadAll(to)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(sent, got))
			})
		}
	}
	all.Wait()
}

// TestACarriedConnectionThatIsCutNeverLooksWhole: a reset is a reset on the other side, and so
// is the loss of the way between; only an end is an end.
func TestACarriedConnectionThatIsCutNeverLooksWhole(t *testing.T) {
	f := start(t)
	t.Run("the host resets", func(t *testing.T) {
		host, program := carried(t, f)
		_, err := host.Write([]byte("half"))
		require.NoError(t, err)
		_, err = io.ReadFull(program, make([]byte, 4))
		require.NoError(t, err)
		reset(t, host)
		_, err = io.ReadAll(program)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("the host closes", func(t *testing.T) {
		host, program := carried(t, f)
		_, err := host.Write(make([]byte, wire.SocketWindow))
		require.NoError(t, err)
		require.NoError(t, host.Close())
		got, err := io.ReadAll(program)
		require.NoError(t, err)
		require.Len(t, got, wire.SocketWindow)
	})
	t.Run("the program resets", func(t *testing.T) {
		host, program := carried(t, f)
		_, err := program.Write([]byte("half"))
		require.NoError(t, err)
		_, err = io.ReadFull(host, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, program.SetLinger(0))
		require.NoError(t, program.Close())
		_, err = io.ReadAll(host)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = host.Write([]byte("x"))
		require.Error(t, err)
	})
	t.Run("the program closes", func(t *testing.T) {
		host, program := carried(t, f)
		_, err := program.Write([]byte("whole"))
		require.NoError(t, err)
		require.NoError(t, program.Close())
		got, err := io.ReadAll(host)
		require.NoError(t, err)
		require.Equal(t, "whole", string(got))
	})
	t.Run("the way is lost", func(t *testing.T) {
		host, program := carried(t, f)
		l, err := f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
		require.NoError(t, err)
		_, err = host.Write([]byte("half"))
		require.NoError(t, err)
		_, err = io.ReadFull(program, make([]byte, 4))
		require.NoError(t, err)
		require.NoError(t, f.Close())
		_, err = io.ReadAll(program)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = io.ReadAll(host)
		require.ErrorIs(t, err, syscall.ECONNRESET)
		require.ErrorIs(t, err, sandbox.ErrLost)
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
		require.ErrorIs(t, err, sandbox.ErrLost)
		_, err = f.DialPort(t.Context(), 1)
		require.ErrorIs(t, err, sandbox.ErrLost)
	})
}

// TestWhoDoesNotReadKeepsNobodyWaiting: a connection whose other end takes nothing stops after
// what may be on its way, while others and programs go on. It gets the held bytes
// once it reads.
func TestWhoDoesNotReadKeepsNobodyWaiting(t *testing.T) {
	f := start(t)
	host, program := carried(t, f)
	sent := make(chan int, 1)
	go func() {
		total := 0
		for piece := make([]byte, 100_000); total < 1<<30; {
			n, err := host.Write(piece)
			if total += n; err != nil {
				break
			}
		}
		sent <- total
	}()
	flood := make(chan int64, 1)
	go func() {
		n, _ := io.Copy(program, io.LimitReader(zeros{}, 1<<30))
		flood <- n
	}()
	other, its := carried(t, f)
	go func() {
		_, _ = io.Copy(its, its)
		_ = its.CloseWrite()
	}()
	go func() {
		_, err := other.Write(make([]byte, 4<<20))
		assert.NoError(t, err)
		assert.NoError(t, other.CloseWrite())
	}()
	got, err := io.ReadAll(other)
	require.NoError(t, err)
	require.Len(t, got, 4<<20)
	require.Equal(t, "fine\n", f.sh(t, "echo fine").out)
	require.NoError(t, host.SetWriteDeadline(time.Now()))
	require.Less(t, <-sent, 1<<30)
	require.NoError(t, host.SetWriteDeadline(time.Time{}))
	reset(t, host)
	require.Less(t, <-flood, int64(1<<30))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestACarriedConnectionHasDeadlines as others have.
func TestACarriedConnectionHasDeadlines(t *testing.T) {
	f := start(t)
	host, program := carried(t, f)
	require.NoError(t, host.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err := host.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.NoError(t, host.SetReadDeadline(time.Time{}))
	read := make(chan error, 1)
	go func() {
		_, err := host.Read(make([]byte, 1))
		read <- err
	}()
	require.NoError(t, host.SetDeadline(time.Unix(1, 0)), "the deadline ends a read that waits")
	require.ErrorIs(t, <-read, os.ErrDeadlineExceeded)
	require.NoError(t, host.SetDeadline(time.Now().Add(time.Hour)))
	_, err = program.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(host, make([]byte, 1))
	require.NoError(t, err)
	go func() {
		_, err := host.Read(make([]byte, 1))
		read <- err
	}()
	require.NoError(t, host.Close())
	require.ErrorIs(t, <-read, net.ErrClosed)
	require.ErrorIs(t, host.Close(), net.ErrClosed)
	_, err = host.Write([]byte("x"))
	require.ErrorIs(t, err, net.ErrClosed)
	require.ErrorIs(t, host.SetDeadline(time.Time{}), net.ErrClosed)
}

// TestDatagramsAreCarried with the address of who sent them.
func TestDatagramsAreCarried(t *testing.T) {
	f := start(t)
	host, err := f.ListenPacket(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	program, err := net.Dial("udp", host.LocalAddr().String())
	require.NoError(t, err)
	defer program.Close()
	buf := make([]byte, 100_000)
	for _, size := range []int{1, 1000, 60_000, 0, 1000} { // in all more than may be on its way
		for range 5 {
			_, err = program.Write(make([]byte, size))
			require.NoError(t, err)
			n, from, err := host.ReadFrom(buf)
			require.NoError(t, err)
			require.Equal(t, size, n)
			require.Equal(t, program.LocalAddr().String(), from.String())
			_, err = host.WriteTo(buf[:size], from)
			require.NoError(t, err)
			n, err = program.Read(buf)
			require.NoError(t, err)
			require.Equal(t, size, n)
		}
	}
	require.NoError(t, host.SetReadDeadline(time.Now()))
	_, _, err = host.ReadFrom(buf)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, host.Close())
	_, _, err = host.ReadFrom(buf)
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = host.WriteTo([]byte("x"), program.LocalAddr())
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestAcceptEndsWithItsListener, and who connects then is refused.
func TestAcceptEndsWithItsListener(t *testing.T) {
	f := start(t)
	l, err := f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	accepted := make(chan error, 3)
	for range cap(accepted) {
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
	}
	require.NoError(t, l.Close())
	for range cap(accepted) {
		require.ErrorIs(t, <-accepted, net.ErrClosed)
	}
	_, err = f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0)) // it has heard of it
	require.NoError(t, err)
	_, err = net.Dial("tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestListenersThatNobodyUsesTakeNoPlace: each name that a program looks up has some.
func TestListenersThatNobodyUsesTakeNoPlace(t *testing.T) {
	f := start(t)
	var accepts sync.WaitGroup
	defer accepts.Wait()
	var last net.Listener
	for range 600 {
		l, err := f.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
		require.NoError(t, err)
		defer l.Close()
		last = l
		accepts.Go(func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				_, _ = conn.Write([]byte("hi"))
				_ = conn.Close()
			}
		})
	}
	inside, err := f.DialPort(t.Context(), uint16(last.Addr().(*net.TCPAddr).Port))
	require.NoError(t, err)
	defer inside.Close()
	said, err := io.ReadAll(inside)
	require.NoError(t, err)
	require.Equal(t, "hi", string(said))
	testDialAddr(t, f.DialAddr)
}

// TestAProgramThatTakesNoConnectionIsGivenUp when who dials does so.
func TestAProgramThatTakesNoConnectionIsGivenUp(t *testing.T) {
	f := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = f.DialPort(ctx, uint16(l.Addr().(*net.TCPAddr).Port))
	if err != nil { // it may be there already
		require.ErrorIs(t, err, context.Canceled)
	}
	for range 600 { // more than there may be at a time
		conn, err := f.DialPort(t.Context(), uint16(l.Addr().(*net.TCPAddr).Port))
		require.NoError(t, err)
		if _, err := l.Accept(); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, conn.Close())
	}
	require.NoError(t, f.Ping(t.Context()))
}
