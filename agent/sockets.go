package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// Sockets asks an agent for sockets of its network, see [sandbox.Networker].
type Sockets struct {
	conn   *net.UnixConn
	asking *lock.Mutex // held by the caller whose answer is next
}

var _ sandbox.Networker = (*Sockets)(nil)

// NewSockets returns Sockets that own the socket for descriptors of a connection to an agent.
func NewSockets(conn *net.UnixConn) *Sockets { return &Sockets{conn: conn, asking: lock.New()} }

// Close ends requests; sockets from earlier requests stay open.
func (s *Sockets) Close() error { return s.conn.Close() }

// Listen implements [sandbox.Networker].
func (s *Sockets) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	file, err := s.ask(ctx, fmt.Sprintf("%s %s %d", wire.AskListen, addr.Addr(), addr.Port()), socket{unix.AF_INET, unix.SOCK_STREAM, true})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FileListener(file)
}

// ListenPacket implements [sandbox.Networker].
func (s *Sockets) ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error) {
	file, err := s.ask(ctx, fmt.Sprintf("%s %s %d", wire.AskUDP, addr.Addr(), addr.Port()), socket{unix.AF_INET, unix.SOCK_DGRAM, false})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return net.FilePacketConn(file)
}

// DialPort implements [sandbox.Networker].
func (s *Sockets) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := s.dial(ctx, wire.AskSocket, unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: int(port)})
	if !errors.Is(err, unix.ECONNREFUSED) {
		return conn, err
	}
	if six, err := s.dial(ctx, wire.AskSix, unix.AF_INET6, &unix.SockaddrInet6{Addr: [16]byte{15: 1}, Port: int(port)}); err == nil {
		return six, nil
	}
	return nil, fmt.Errorf("port %d of the sandbox: %w", port, err)
}

// DialAddr implements [sandbox.Networker].
func (s *Sockets) DialAddr(ctx context.Context, addr netip.AddrPort) (conn net.Conn, err error) {
	if a, port := addr.Addr(), int(addr.Port()); a.Is4() {
		conn, err = s.dial(ctx, wire.AskSocket, unix.AF_INET, &unix.SockaddrInet4{Addr: a.As4(), Port: port})
	} else {
		conn, err = s.dial(ctx, wire.AskSix, unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16(), Port: port})
	}
	if err != nil {
		return nil, fmt.Errorf("%s of the sandbox: %w", addr, err)
	}
	return conn, nil
}

func (s *Sockets) dial(ctx context.Context, request string, domain int, to unix.Sockaddr) (net.Conn, error) {
	file, err := s.ask(ctx, request, socket{domain, unix.SOCK_STREAM, false})
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := connect(ctx, int(file.Fd()), to); err != nil {
		return nil, err
	}
	return net.FileConn(file)
}

// connect connects to loopback, which takes no time unless the queue of a program that doesn't accept is full.
func connect(ctx context.Context, fd int, to unix.Sockaddr) error {
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	err := unix.Connect(fd, to)
	if !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	for ctx.Err() == nil {
		n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int((50 * time.Millisecond).Milliseconds()))
		if n > 0 {
			return failed(fd)
		}
	}
	return ctx.Err()
}

// failed returns the result of a finished connection attempt.
func failed(fd int) error {
	errno, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if errno != 0 {
		return unix.Errno(errno)
	}
	return err
}

// askTime is the time for an agent to answer. After that it gets no more requests.
var askTime = patience.For(10 * time.Second)

// ask sends a request and receives the socket that answers it. It checks the kind, since the socket comes out of the
// sandbox. It receives the answer even if its caller no longer waits, since the next answer is another caller's.
func (s *Sockets) ask(ctx context.Context, request string, want socket) (*os.File, error) {
	if err := s.asking.Lock(ctx); err != nil {
		return nil, err
	}
	type answer struct {
		file *os.File
		err  error
	}
	answers := make(chan answer)
	go func() {
		file, err := s.take(request, want)
		s.asking.Unlock()
		select {
		case answers <- answer{file, err}:
		case <-ctx.Done():
			file.Close() // nil is fine
		}
	}()
	var got answer
	select {
	case got = <-answers:
	case <-ctx.Done():
		got.err = ctx.Err()
	}
	if got.err != nil {
		return nil, fmt.Errorf("%w: a socket of the sandbox: %w", sandbox.ErrUnavailable, got.err)
	}
	return got.file, nil
}

// take requests a socket and checks it. The caller must hold asking.
func (s *Sockets) take(request string, want socket) (*os.File, error) {
	_ = s.conn.SetDeadline(time.Now().Add(askTime))
	file, err := s.exchange(request)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.conn.Close() // a late answer would be taken for the next one
	}
	if err != nil {
		return nil, err
	}
	if err := want.check(int(file.Fd())); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (s *Sockets) exchange(request string) (*os.File, error) {
	if _, err := s.conn.Write([]byte(request)); err != nil {
		return nil, err
	}
	buf, space := make([]byte, 512), make([]byte, unix.CmsgSpace(8*4))
	n, more, _, _, err := s.conn.ReadMsgUnix(buf, space)
	if err != nil {
		return nil, err
	}
	files := received(space[:more])
	text := string(buf[:n])
	if len(files) == 1 && text == wire.Granted {
		return files[0], nil
	}
	for _, file := range files {
		file.Close()
	}
	if why, ok := strings.CutPrefix(text, wire.Refused); ok {
		return nil, errors.New(strings.ToValidUTF8(why, "?"))
	}
	return nil, wire.ErrProtocol
}

func received(control []byte) (files []*os.File) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "sandbox"))
		}
	}
	return files
}

// socket is the kind of a socket.
type socket struct {
	domain, kind int
	listens      bool
}
