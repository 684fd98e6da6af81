package agent_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// TestSocketsAreTheSandboxesOwn: what listens in the agent's network is not reachable
// in ours, and programs there reach it.
func TestSocketsAreTheSandboxesOwn(t *testing.T) {
	f := start(t)
	conn, descriptors := f.cmd.ConnectBoth(t)
	sockets := agent.NewSockets(descriptors)
	defer sockets.Close()
	defer conn.Close()
	t.Run("handed over", func(t *testing.T) { checkNetwork(t, sockets) })
	t.Run("carried", func(t *testing.T) { checkNetwork(t, f.Conn) })
	_, err := sockets.Listen(t.Context(), netip.MustParseAddrPort("[::1]:1"))
	require.ErrorContains(t, err, "IPv4")
}

func checkNetwork(t *testing.T, sockets sandbox.Networker) {
	listener, err := sockets.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	defer listener.Close()
	answered := make(chan error, 1)
	go func() {
		accepted, err := listener.Accept()
		if err == nil {
			_, err = io.WriteString(accepted, "hello\n")
			accepted.Close()
		}
		answered <- err
	}()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	dialed, err := sockets.DialPort(t.Context(), port)
	require.NoError(t, err)
	defer dialed.Close()
	said, err := io.ReadAll(dialed)
	require.NoError(t, err)
	require.NoError(t, <-answered)
	require.Equal(t, "hello\n", string(said))

	testDialAddr(t, sockets.DialAddr)

	packets, err := sockets.ListenPacket(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	require.NoError(t, packets.Close())

	_, err = sockets.Listen(t.Context(), netip.AddrPortFrom(loopback, port))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.ErrorContains(t, err, "address already in use")
	_, err = sockets.Listen(t.Context(), netip.MustParseAddrPort("[::1]:1"))
	require.ErrorIs(t, err, sandbox.ErrUnavailable)
	require.NoError(t, listener.Close())
	_, err = sockets.DialPort(t.Context(), port)
	require.ErrorContains(t, err, "refused")
}

// testDialAddr connects to servers on one address of the loopback device each, and on no other.
func testDialAddr(t *testing.T, dial func(context.Context, netip.AddrPort) (net.Conn, error)) {
	t.Helper()
	for _, at := range []string{"127.0.0.2:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		require.NoError(t, err)
		defer l.Close()
		addr := l.Addr().(*net.TCPAddr).AddrPort()
		conn, err := dial(t.Context(), addr)
		require.NoError(t, err, at)
		accepted, err := l.Accept()
		require.NoError(t, err)
		_, err = io.WriteString(accepted, at)
		require.NoError(t, err)
		require.NoError(t, accepted.Close())
		said, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, at, string(said))
		require.NoError(t, conn.Close())
		_, err = dial(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.3"), addr.Port()))
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	}
}

// TestOnlyTheSocketAskedForIsTaken: what an agent hands over may be anything.
func TestOnlyTheSocketAskedForIsTaken(t *testing.T) {
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	stream, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(stream)
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(six)
	for name, answer := range map[string]struct {
		text string
		fds  []int
	}{
		"not a socket":     {"+", []int{int(null.Fd())}},
		"does not listen":  {"+", []int{stream}},
		"another family":   {"+", []int{six}},
		"two":              {"+", []int{stream, six}},
		"none":             {"+", nil},
		"garbage":          {"\x00\xff", nil},
		"refused with one": {"-no", []int{stream}},
		"the end":          {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			require.NoError(t, err)
			file := os.NewFile(uintptr(fds[0]), "ours")
			conn, err := net.FileConn(file)
			require.NoError(t, err)
			file.Close()
			sockets := agent.NewSockets(conn.(*net.UnixConn))
			defer sockets.Close()
			if answer.text != "" {
				require.NoError(t, unix.Sendmsg(fds[1], []byte(answer.text), unix.UnixRights(answer.fds...), nil, 0))
			}
			_ = unix.Shutdown(fds[1], unix.SHUT_WR)
			defer unix.Close(fds[1])
			_, err = sockets.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
			require.ErrorIs(t, err, sandbox.ErrUnavailable)
		})
	}
}

// unanswered gives sockets of an agent for which a test answers, at the descriptor other.
func unanswered(t *testing.T) (sockets *agent.Sockets, other int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fds[1]) })
	file := os.NewFile(uintptr(fds[0]), "ours")
	conn, err := net.FileConn(file)
	require.NoError(t, err)
	file.Close()
	return agent.NewSockets(conn.(*net.UnixConn)), fds[1]
}

// TestAnAnswerThatNobodyWaitsForIsNobodyElses: who gives up spoils it for nobody.
func TestAnAnswerThatNobodyWaitsForIsNobodyElses(t *testing.T) {
	sockets, other := unanswered(t)
	defer sockets.Close()
	var buf [64]byte
	answer := func(kind int) {
		n, err := unix.Read(other, buf[:])
		require.NoError(t, err)
		require.Equal(t, "udp 127.0.0.1 0", string(buf[:n]))
		fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, unix.Sendmsg(other, []byte("+"), unix.UnixRights(fd), nil, 0))
		unix.Close(fd)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := sockets.ListenPacket(ctx, netip.AddrPortFrom(loopback, 0))
		gaveUp <- err
	}()
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(other), Events: unix.POLLIN}}, -1)
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-gaveUp, context.Canceled)
	served := make(chan error, 1)
	go func() {
		packets, err := sockets.ListenPacket(t.Context(), netip.AddrPortFrom(loopback, 0))
		if err == nil {
			err = packets.Close()
		}
		served <- err
	}()
	answer(unix.SOCK_STREAM) // to the one that left: what it is doesn't matter
	answer(unix.SOCK_DGRAM)
	require.NoError(t, <-served)
}

// TestPortsAreLookedAt: what listens is seen, without a connection to it.
func TestPortsAreLookedAt(t *testing.T) {
	f := start(t)
	conn, descriptors := f.cmd.ConnectBoth(t)
	sockets := agent.NewSockets(descriptors)
	defer sockets.Close()
	defer conn.Close()
	listener, err := sockets.Listen(t.Context(), netip.AddrPortFrom(loopback, 0))
	require.NoError(t, err)
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	listens, err := f.Listens(t.Context(), port)
	require.NoError(t, err)
	require.True(t, listens)
	require.NoError(t, listener.Close())
	listens, err = f.Listens(t.Context(), port)
	require.NoError(t, err)
	require.False(t, listens)
	port = taken(t) // or another one's server may have it at 127.0.0.1
	elsewhere, err := sockets.Listen(t.Context(), netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), port))
	require.NoError(t, err)
	defer elsewhere.Close()
	listens, err = f.Listens(t.Context(), port)
	require.NoError(t, err)
	require.False(t, listens, "nobody gets there at 127.0.0.1")
}

// taken is a port of 127.0.0.1 that nobody can listen on until the test ends.
func taken(t *testing.T) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback.As4()}))
	at, err := unix.Getsockname(fd)
	require.NoError(t, err)
	return uint16(at.(*unix.SockaddrInet4).Port)
}

// TestAServerOnIPv6IsReached: programs that listen on localhost may mean ::1 alone.
func TestAServerOnIPv6IsReached(t *testing.T) {
	listener, err := net.Listen("tcp", "[::1]:0")
	require.NoError(t, err)
	defer listener.Close()
	f := start(t)
	conn, descriptors := f.cmd.ConnectBoth(t)
	sockets := agent.NewSockets(descriptors)
	defer sockets.Close()
	defer conn.Close()
	port := uint16(listener.Addr().(*net.TCPAddr).Port)
	listens, err := f.Listens(t.Context(), port)
	require.NoError(t, err)
	require.True(t, listens)
	dialed, err := sockets.DialPort(t.Context(), port)
	require.NoError(t, err)
	require.NoError(t, dialed.Close())
}

// TestAnAgentThatDoesNotAnswerHoldsNobody.
func TestAnAgentThatDoesNotAnswerHoldsNobody(t *testing.T) {
	sockets, _ := unanswered(t)
	defer sockets.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := sockets.DialPort(ctx, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
