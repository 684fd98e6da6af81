package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// stream is a connection in the sandbox whose data is carried by frames, a [net.Conn].
type stream struct {
	net    *network
	number uint32

	answered    chan struct{} // closed once it is open, or never will be
	local, peer netip.AddrPort
	readable    chan struct{} // something came; room for one
	writable    chan struct{} // credit came; room for one
	gone        chan struct{} // closed after the agent's last frame
	closed      chan struct{} // closed by Close and Reset
	once        sync.Once
	readBy      deadline
	writeBy     deadline
	reading     sync.Mutex
	writing     sync.Mutex
	finished    bool // by CloseWrite; guarded by writing
	mu          sync.Mutex
	place       <-chan struct{} // where it has one
	buf         []byte          // what came and nobody has read
	at          int             // of buf: what is read already
	granted     int             // bytes that the agent may still send
	mayWrite    int             // bytes that it takes
	ended       bool            // the program has ended its direction
	lost        error           // why it is gone
}

func newStream(n *network) *stream {
	return &stream{
		net: n, answered: make(chan struct{}), gone: make(chan struct{}), closed: make(chan struct{}),
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		readBy: newDeadline(), writeBy: newDeadline(), granted: wire.SocketWindow, mayWrite: wire.SocketWindow,
	}
}

// open requests the connection, which already has a place.
func (s *stream) open(place <-chan struct{}, request string) (err error) {
	s.place = place
	s.number, err = s.net.open(s, request, s.leavePlace)
	return err
}

// move exchanges its place for another one, unless it has already left it.
func (s *stream) move(to <-chan struct{}) {
	s.mu.Lock()
	from := s.place
	if from != nil {
		s.place = to
	}
	s.mu.Unlock()
	if from == nil {
		from = to
	}
	<-from
}

// leavePlace gives up its place. It is called once, at the end.
func (s *stream) leavePlace() {
	s.mu.Lock()
	from := s.place
	s.place = nil
	s.mu.Unlock()
	<-from
}

// why returns the reason why a stream is gone.
func (s *stream) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func (s *stream) opened(local, peer netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil { // otherwise the connection has ended at the same time
		s.local, s.peer = local, peer
		close(s.answered)
	}
}

func (s *stream) data(payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.granted -= len(payload); s.granted < 0 || s.ended {
		return wire.Errorf("more data than granted, or after the end")
	}
	select {
	case <-s.closed: // discarded, and never granted again
		return nil
	default:
	}
	if s.at > 0 && len(s.buf)+len(payload) > cap(s.buf) {
		s.buf = s.buf[:copy(s.buf, s.buf[s.at:])]
		s.at = 0
	}
	s.buf = append(s.buf, payload...)
	wake(s.readable)
	return nil
}

func (s *stream) credit(n uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(n) > int64(wire.SocketWindow-s.mayWrite) {
		return wire.Errorf("more credit than was used")
	}
	s.mayWrite += int(n)
	wake(s.writable)
	return nil
}

func (s *stream) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return wire.Errorf("a second end")
	}
	s.ended = true
	wake(s.readable)
	return nil
}

func (s *stream) over(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = unix.ECONNRESET
	if errno, ok := errors.AsType[unix.Errno](cause); ok {
		s.lost = errno
	} else if cause != nil {
		s.lost = fmt.Errorf("%w: %w", s.lost, cause)
	}
	if !s.local.IsValid() {
		close(s.answered)
	}
	close(s.gone)
}

// wake wakes a present or future waiter.
func wake(sign chan struct{}) {
	select {
	case sign <- struct{}{}:
	default:
	}
}

// Read implements [net.Conn]. Bytes that arrived before a reset are read before its error.
func (s *stream) Read(b []byte) (int, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	for {
		if err := stopped(s.closed, &s.readBy); err != nil {
			return 0, s.failed("read", err)
		}
		n, credit, end := s.take(b)
		if credit > 0 {
			s.net.say(wire.SocketCredit, s.number, binary.BigEndian.AppendUint32(nil, uint32(credit)))
		}
		if n > 0 || len(b) == 0 {
			return n, nil
		}
		if end != nil {
			if end == io.EOF { //nolint:errorlint // the error of a lost connection wraps it
				return 0, io.EOF
			}
			return 0, s.failed("read", end)
		}
		select {
		case <-s.readable:
		case <-s.gone: // next time there is something, or the end
		case <-s.closed:
		case <-s.readBy.passed():
		}
	}
}

// take returns available bytes with the credit due for them, or the end.
func (s *stream) take(b []byte) (n, credit int, end error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = copy(b, s.buf[s.at:])
	if s.at += n; s.at == len(s.buf) {
		s.buf, s.at = s.buf[:0], 0
	}
	left := len(s.buf) - s.at
	if owed := wire.SocketWindow - s.granted - left; owed >= wire.SocketWindow/4 && !s.ended && s.lost == nil {
		credit = owed
		s.granted += owed
	}
	switch {
	case n > 0 || left > 0:
	case s.ended:
		end = io.EOF
	case s.lost != nil:
		end = s.lost
	}
	return n, credit, end
}

// Write implements [net.Conn]. It returns once all is on its way to the agent.
func (s *stream) Write(b []byte) (written int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	for len(b) > 0 {
		n, err := s.reserve(len(b))
		if err == nil {
			err = s.send(b[:n])
		}
		if err != nil {
			return written, s.failed("write", err)
		}
		written, b = written+n, b[n:]
	}
	return written, nil
}

// reserve waits until the agent accepts bytes, and returns their number, at most size.
func (s *stream) reserve(size int) (int, error) {
	for {
		if err := stopped(s.closed, &s.writeBy); err != nil {
			return 0, err
		}
		select {
		case <-s.gone:
			return 0, s.why()
		default:
		}
		if s.finished {
			return 0, unix.EPIPE
		}
		s.mu.Lock()
		n := min(s.mayWrite, size, wire.Chunk)
		s.mayWrite -= n
		s.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-s.writable:
		case <-s.gone:
		case <-s.closed:
		case <-s.writeBy.passed():
		}
	}
}

// send sends reserved bytes, or returns the reservation.
func (s *stream) send(b []byte) error {
	select {
	case s.net.held <- struct{}{}:
		s.net.add(wire.SocketData, s.number, b, 1)
		return nil
	case <-s.gone:
		return s.why()
	case <-s.closed:
		return net.ErrClosed
	case <-s.writeBy.passed():
	}
	s.mu.Lock()
	s.mayWrite += len(b)
	s.mu.Unlock()
	return os.ErrDeadlineExceeded
}

func (s *stream) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}

// CloseWrite ends the writing half. Reading goes on.
func (s *stream) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	select {
	case <-s.closed:
		return s.failed("close", net.ErrClosed)
	case <-s.gone:
		return s.failed("close", s.why())
	default:
	}
	if !s.finished {
		s.finished = true
		s.net.say(wire.SocketEnd, s.number, nil)
	}
	return nil
}

// Close implements [net.Conn]: the program gets what was written, and an end.
func (s *stream) Close() error { return s.leave(wire.SocketClose) }

// Reset closes the connection so that the program sees an error, not an end.
func (s *stream) Reset() error { return s.leave(wire.SocketReset) }

func (s *stream) leave(how wire.Type) error {
	err := error(net.ErrClosed)
	s.once.Do(func() {
		err = nil
		close(s.closed)
		s.mu.Lock()
		s.buf, s.at = nil, 0
		s.mu.Unlock()
		s.readBy.set(time.Time{})
		s.writeBy.set(time.Time{})
		select {
		case <-s.gone:
		default:
			s.net.say(how, s.number, nil)
		}
	})
	return err
}

// LocalAddr implements [net.Conn]; it is the sandbox's.
func (s *stream) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(s.local) }

// RemoteAddr implements [net.Conn]; it is a program's.
func (s *stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.peer) }

// SetDeadline implements [net.Conn].
func (s *stream) SetDeadline(t time.Time) error {
	return firstOf(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (s *stream) SetReadDeadline(t time.Time) error { return s.setDeadline(&s.readBy, t) }

// SetWriteDeadline implements [net.Conn].
func (s *stream) SetWriteDeadline(t time.Time) error { return s.setDeadline(&s.writeBy, t) }

func (s *stream) setDeadline(by *deadline, t time.Time) error {
	select {
	case <-s.closed:
		return s.failed("set", net.ErrClosed)
	default:
		by.set(t)
		return nil
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
