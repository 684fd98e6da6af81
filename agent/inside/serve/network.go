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

// socket is one that the host uses by frames.
type socket interface {
	// data, credit and end take what the host says; false is a broken protocol.
	data(payload []byte) bool
	credit(n int64) bool
	end() bool
	// close ends it in order, where that can be, or by a reset. The last frame follows
	// as soon as all is written.
	close(reset bool)
}

// openSocket begins a socket. The result is reported at once or, of one that has to
// wait for another end, later.
func (c *conn) openSocket(number uint32, request string) bool {
	if number == 0 || c.sockets[number] != nil {
		return false
	}
	end := ending{c, number, -1, 0}
	words := strings.Fields(request)
	waits := len(words) > 0 && words[0] == wire.AskAccept // and has no descriptor yet
	if len(c.sockets) >= c.server.mostSockets && !waits {
		end.refuse(unix.EMFILE)
		return true
	}
	switch {
	case len(words) == 2 && words[0] == wire.AskAccept:
		return c.accept(&stream{ending: end}, words[1])
	case len(words) == 2 && words[0] == wire.AskConnect:
		return connectTo(&stream{ending: end}, words[1])
	case len(words) == 3 && words[0] == wire.AskListen, len(words) == 3 && words[0] == wire.AskUDP:
		return bind(end, request)
	}
	return false
}

// bind makes a socket that has an address.
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

// socketFrame acts on a frame for a socket, which may have ended meanwhile.
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

// ending is what every socket has: its place here and at the host.
type ending struct {
	conn   *conn
	number uint32
	fd     int    // -1 where it has none yet
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

// isOpen says that the socket is there.
func (e *ending) isOpen() {
	e.say(wire.Opened{Local: addressOf(unix.Getsockname(e.fd)), Peer: addressOf(unix.Getpeername(e.fd))})
}

// refuse says that there will be no socket.
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

// over says the last word on a socket.
func (e *ending) over() {
	e.closeFD()
	delete(e.conn.sockets, e.number)
	e.conn.send(wire.SocketClosed, e.number, nil)
}

// listener waits for connections as long as the host asks for one.
type listener struct {
	ending
	waiting []*stream
}

// accept has a stream wait for the next connection to a listener.
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

// forget has a stream wait no longer.
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
