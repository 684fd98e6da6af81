package serve

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// socket is a socket that the host uses through frames.
type socket interface {
	// data, credit and end handle the host's frames; false means a protocol error.
	data(payload []byte) bool
	credit(n int64) bool
	end() bool
	// close ends it in order if possible, or by a reset. The last frame follows as soon as everything is written.
	close(reset bool)
}

// openSocket opens a socket. It reports the result at once, or later if the socket has to wait for its peer.
func (c *conn) openSocket(number uint32, request string) bool {
	if number == 0 || c.sockets[number] != nil {
		return false
	}
	end := ending{c, number, -1, 0}
	words := strings.Fields(request)
	waits := len(words) > 0 && words[0] == wire.AskAccept // it has no descriptor yet
	if len(c.sockets) >= c.server.mostSockets && !waits {
		end.refuse(unix.EMFILE)
		return true
	}
	switch {
	case len(words) == 2 && words[0] == wire.AskAccept:
		return c.accept(&stream{ending: end}, words[1])
	case (len(words) == 2 || len(words) == 3) && words[0] == wire.AskConnect:
		return connectTo(&stream{ending: end}, words[1:])
	case len(words) == 3 && words[0] == wire.AskListen, len(words) == 3 && words[0] == wire.AskUDP:
		return bind(end, request)
	}
	return false
}

// bind creates a socket with an address.
func bind(end ending, request string) bool {
	fd, err := makeSocket(request)
	if err != nil {
		end.refuse(err)
		return true
	}
	_ = unix.SetNonblock(fd, true)
	end.fd = fd
	if strings.HasPrefix(request, wire.AskListen) {
		end.conn.sockets[end.number] = &listener{ending: end}
	} else {
		p := &packets{ending: end, window: wire.SocketWindow}
		p.conn.sockets[p.number] = p
		p.watch(unix.EPOLLIN, p.pull)
	}
	end.isOpen()
	return true
}

// socketFrame handles a frame for a socket, which may have ended meanwhile.
func (c *conn) socketFrame(typ wire.Type, number uint32, payload []byte) bool {
	s := c.sockets[number]
	switch {
	case typ == wire.SocketOpen:
		return c.openSocket(number, string(payload))
	case s == nil:
		return true
	case typ == wire.SocketData:
		return s.data(payload)
	case typ == wire.SocketCredit:
		return len(payload) == 4 && s.credit(int64(binary.BigEndian.Uint32(payload)))
	case typ == wire.SocketEnd:
		return s.end()
	}
	s.close(typ == wire.SocketReset)
	return true
}

// resetSockets ends all sockets of a connection.
func (c *conn) resetSockets() {
	for _, s := range c.sockets {
		s.close(true)
	}
}

// ending is the common part of all sockets: its descriptor here and its number at the host.
type ending struct {
	conn   *conn
	number uint32
	fd     int    // -1 if it has none yet
	polled uint32 // events that it is watched for
}

func (e *ending) watch(events uint32, f func()) {
	if events == e.polled {
		return
	}
	if e.polled != 0 {
		e.conn.server.unwatch(e.fd)
	}
	if e.polled = events; events != 0 {
		e.conn.server.watch(e.fd, events, f)
	}
}

func (e *ending) closeFD() {
	e.watch(0, nil)
	if e.fd >= 0 {
		_ = unix.Close(e.fd)
	}
	e.fd = -1
}

// isOpen reports to the host that the socket is open.
func (e *ending) isOpen() {
	e.say(wire.Opened{Local: addressOf(unix.Getsockname(e.fd)), Peer: addressOf(unix.Getpeername(e.fd))})
}

// refuse reports to the host that the socket can't be opened.
func (e *ending) refuse(err error) {
	e.closeFD()
	delete(e.conn.sockets, e.number)
	errno := unix.EINVAL
	_ = errors.As(err, &errno)
	e.say(wire.Opened{Errno: int(errno)})
}

func (e *ending) say(opened wire.Opened) {
	text, _ := json.Marshal(opened)
	e.conn.send(wire.SocketOpened, e.number, text)
}

// over sends a socket's last frame.
func (e *ending) over() {
	e.closeFD()
	delete(e.conn.sockets, e.number)
	e.conn.send(wire.SocketClosed, e.number, nil)
}

// listener accepts connections while the host has requested one.
type listener struct {
	ending
	waiting []*stream
}

// accept makes a stream wait for the next connection to a listener.
func (c *conn) accept(s *stream, to string) bool {
	number, err := strconv.ParseUint(to, 10, 32)
	if err != nil {
		return false
	}
	l, ok := c.sockets[uint32(number)].(*listener)
	if !ok { // it was closed meanwhile
		s.refuse(unix.ECANCELED)
		return true
	}
	s.from = l
	c.sockets[s.number] = s
	l.waiting = append(l.waiting, s)
	l.watch(unix.EPOLLIN, l.accept)
	return true
}

func (l *listener) accept() {
	for range len(l.waiting) {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if again(err) || errors.Is(err, unix.ECONNABORTED) {
			return
		}
		s := l.waiting[0]
		l.waiting, s.from = l.waiting[1:], nil
		if err != nil {
			s.refuse(err)
			continue
		}
		s.fd = fd
		s.connected()
	}
	l.watch(0, nil)
}

// forget stops a stream's wait.
func (l *listener) forget(s *stream) {
	for i, one := range l.waiting {
		if one == s {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}

func (l *listener) data([]byte) bool  { return false }
func (l *listener) credit(int64) bool { return false }
func (l *listener) end() bool         { return false }

func (l *listener) close(bool) {
	for _, s := range l.waiting {
		s.refuse(unix.ECANCELED)
	}
	l.over()
}
