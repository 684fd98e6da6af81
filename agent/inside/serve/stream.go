package serve

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// lingering is how long a program may take to read the data that the host sent before it closed the connection.
const lingering = time.Minute

// stream is a connection between a program and the host.
type stream struct {
	ending
	from   *listener     // it waits for a connection to this listener
	next   unix.Sockaddr // where to connect if the first address refuses
	second bool          // it is connecting there
	opened bool

	window int  // bytes that the host accepts now
	ended  bool // the program has ended its direction, and the host knows

	queue   []byte // for the program
	room    int    // bytes that the host may send
	owed    int    // bytes that the program has read, and that are not yet granted again
	eof     bool   // follows the queue
	shut    bool   // the program has seen it
	closing bool   // the host has closed it; the queue is still written
	patient *timer // timer for that
}

// connectTo connects to a program's port, at an address of the loopback device or at any where it would be looked for.
func connectTo(s *stream, at []string) bool {
	number, err := strconv.ParseUint(at[len(at)-1], 10, 16)
	if err != nil || number == 0 {
		return false
	}
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if len(at) == 1 {
		s.next = sockaddr(netip.IPv6Loopback(), int(number))
	} else if addr, err = netip.ParseAddr(at[0]); err != nil || !addr.IsLoopback() || addr.Is4In6() || addr.Zone() != "" {
		return false
	}
	s.conn.sockets[s.number] = s
	s.dial(sockaddr(addr, int(number)))
	return true
}

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
}

func (s *stream) dial(to unix.Sockaddr) {
	domain := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_TCP)
	if err == nil {
		s.fd = fd
		err = unix.Connect(fd, to)
	}
	if errors.Is(err, unix.EINPROGRESS) { // the backlog of a program that doesn't accept is full
		s.watch(unix.EPOLLOUT, s.dialed)
		return
	}
	s.reached(err)
}

// dialed checks the result of connecting.
func (s *stream) dialed() {
	errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if errno != 0 {
		err = unix.Errno(errno)
	} else if _, early := unix.Getpeername(s.fd); early != nil && err == nil {
		return
	}
	s.reached(err)
}

func (s *stream) reached(err error) {
	s.watch(0, nil)
	switch {
	case err == nil:
		s.connected()
	case errors.Is(err, unix.ECONNREFUSED) && s.next != nil && !s.second:
		s.closeFD()
		s.second = true
		s.dial(s.next)
	case s.second: // the error of the first address
		s.refuse(unix.ECONNREFUSED)
	default:
		s.refuse(err)
	}
}

// connected begins to carry bytes.
func (s *stream) connected() {
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	s.opened, s.window, s.room = true, wire.SocketWindow, wire.SocketWindow
	s.isOpen()
	s.rewatch()
}

// rewatch updates the events that the loop waits for.
func (s *stream) rewatch() {
	if s.fd < 0 {
		return
	}
	var events uint32
	if !s.ended && !s.closing && s.window > 0 && !s.conn.stalled[s] {
		events |= unix.EPOLLIN
	}
	if len(s.queue) > 0 {
		events |= unix.EPOLLOUT
	}
	s.watch(events, s.ready)
}

func (s *stream) ready() {
	s.push()
	s.pull()
	s.rewatch()
}

// poll continues once the host's queue has room.
func (s *stream) poll() {
	s.pull()
	s.rewatch()
}

// pull passes on one piece of the program's data.
func (s *stream) pull() {
	if s.fd < 0 || s.ended || s.closing || s.window == 0 {
		return
	}
	if s.conn.size() > backlog {
		s.conn.stall(s)
		return
	}
	frame := s.conn.server.room[:wire.HeaderSize+min(wire.Chunk, s.window)]
	n, err := unix.Read(s.fd, frame[wire.HeaderSize:])
	switch {
	case again(err):
	case err != nil:
		s.over() // the program has reset the connection
	case n == 0:
		s.ended = true
		s.conn.send(wire.SocketEnd, s.number, nil)
		s.settle()
	default:
		s.window -= n
		s.conn.sendData(wire.SocketData, s.number, frame[:wire.HeaderSize+n])
	}
}

// push writes the queue.
func (s *stream) push() {
	if s.fd < 0 || len(s.queue) == 0 {
		return
	}
	rest := s.write(s.queue)
	s.queue = s.queue[:copy(s.queue, rest)]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	s.settle()
}

// write writes as much as the program accepts now, and returns the rest.
func (s *stream) write(data []byte) []byte {
	n, err := unix.Write(s.fd, data)
	if err != nil && !again(err) {
		s.queue = nil
		s.over()
		return nil
	}
	n = max(n, 0)
	if s.owed += n; s.owed >= wire.SocketWindow/4 && !s.closing {
		s.conn.send(wire.SocketCredit, s.number, binary.BigEndian.AppendUint32(nil, uint32(s.owed)))
		s.room += s.owed
		s.owed = 0
	}
	return data[n:]
}

// settle passes on the end after the queue, and closes a stream whose two directions have ended.
func (s *stream) settle() {
	if s.fd < 0 || len(s.queue) > 0 {
		return
	}
	if s.eof && !s.shut {
		s.shut = true
		_ = unix.Shutdown(s.fd, unix.SHUT_WR)
	}
	if s.closing || s.shut && s.ended {
		s.over()
	}
}

func (s *stream) data(payload []byte) bool {
	if s.closing {
		return true
	}
	if s.room -= len(payload); !s.opened || s.eof || s.room < 0 {
		return false
	}
	if len(s.queue) == 0 {
		payload = s.write(payload)
	}
	s.queue = append(s.queue, payload...)
	s.rewatch()
	return true
}

func (s *stream) credit(n int64) bool {
	if !s.opened || n > int64(wire.SocketWindow-s.window) {
		return false
	}
	s.window += int(n)
	s.rewatch()
	return true
}

func (s *stream) end() bool {
	if !s.opened || s.eof {
		return false
	}
	s.eof = true
	s.settle()
	return true
}

func (s *stream) close(reset bool) {
	if reset || !s.opened {
		s.cut()
		return
	}
	if s.closing {
		return
	}
	s.closing = true
	s.patient = s.conn.server.after(lingering, s.cut)
	s.settle()
	s.rewatch()
}

// cut ends the connection such that the program doesn't take it for complete.
func (s *stream) cut() {
	if s.from != nil {
		s.from.forget(s)
	}
	if s.fd >= 0 {
		_ = unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	s.queue = nil
	s.over()
}

func (s *stream) over() {
	s.conn.server.cancel(s.patient)
	s.ending.over()
}

// addressOf returns the zero address if there is none.
func addressOf(at unix.Sockaddr, err error) netip.AddrPort {
	switch a := at.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	return netip.AddrPort{}
}
