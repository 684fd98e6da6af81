// Package hold keeps sessions in a process for clients in others: the protocol
// between the two, the server in the process that holds a session, the client, and
// how a client starts such a process. The session performs the operations:
// this package carries their names, arguments, streams and answers.
//
// A client makes one connection on a unix socket for each operation, frames go both
// ways, and the operation ends with the connection; a program to which the operation
// only attached runs on. Both ends are the
// same user's wisbox: the protocol guards against accidents, not attackers.
//
//	frame    [u8 type][u32 length, big endian][payload]
//	client   Request first; Go, if the request says that it comes; then Stdin and StdinEnd of an operation that reads a
//	         stream; Signal of a program; Resize of one that was started; Kill
//	holder   Taken first, if the request asks for it: from then on the operation
//	         may have begun, and without it nothing has; with Go it begins when
//	         that comes, so that a client whose connection broke before it sent
//	         Go knows that nothing has; Answer or Failure, once
//	         and last; before it Stdout, Stderr, Stdin (how many bytes of input
//	         were read), Progress, Connection and, for a started program, Started
package hold

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/relay"
)

// Type is a frame's type.
type Type byte

// The frame types.
const (
	FrameRequest  Type = 'Q' // JSON of a Request
	FrameTaken    Type = 'T' // the operation begins now; the payload is the holder's Version
	FrameAnswer   Type = 'A' // JSON, the operation's own
	FrameFailure  Type = 'F' // JSON of a tool.Error
	FrameStarted  Type = 'P' // the program runs; the payload is its introduction, see Introducer
	FrameProgress Type = 'p' // text: the progress of the call; it replaces earlier ones
	FrameStdin    Type = 'i'
	FrameStdinEnd Type = 'e'
	FrameStdout   Type = 'o'
	FrameStderr   Type = 'x'
	FrameSignal   Type = 's' // a signal's name without SIG
	FrameResize   Type = 'w' // JSON of a sandbox.WinSize
	FrameKill     Type = 'k'
	FrameGo       Type = 'g' // the client knows that its operation is taken
	FrameConn     Type = 'c' // a connection: its descriptor comes with the frame
)

// MaxFrame bounds a frame's payload in bytes. No answer of a tool is larger.
const MaxFrame = 64 << 20

// ChunkSize is the maximum size of a stream's piece in one frame, in bytes.
const ChunkSize = 128 << 10

const headerSize = 5

// Conn reads frames from one goroutine and writes them from many.
type Conn struct {
	net.Conn
	received []byte // room for a payload

	admit func(n int) error // checks the size of each frame before it is read; nil admits up to MaxFrame

	takes bool     // descriptors; set before the first Receive
	taken *os.File // the last one, until conn returns it

	mu     sync.Mutex // guards the fields below: one frame at a time
	header [headerSize]byte
	parts  [2][]byte
	frame  net.Buffers
}

// NewConn returns a Conn that uses the protocol on c.
func NewConn(c net.Conn) *Conn { return &Conn{Conn: c} }

// On is like NewConn for the results of a dial.
func On(c net.Conn, err error) (*Conn, error) {
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// Send writes one frame.
func (c *Conn) Send(t Type, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("send frame %q: %d bytes are over the limit of %d", t, len(payload), MaxFrame)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.header[0] = byte(t)
	binary.BigEndian.PutUint32(c.header[1:], uint32(len(payload)))
	c.parts = [2][]byte{c.header[:], payload}
	c.frame = c.parts[:]
	_, err := c.frame.WriteTo(c.Conn)
	c.parts[1] = nil
	return err
}

// errNoDescriptors is the error if the connection isn't a unix socket, or none came with the frame.
var errNoDescriptors = errors.New("a connection can't be handed over this way")

// sendConn hands a connection over and closes it here. It joins one without a descriptor
// to one that has a descriptor, for as long as both last.
func (c *Conn) sendConn(conn net.Conn) error {
	to, ok := c.Conn.(*net.UnixConn)
	if !ok {
		return errors.Join(errNoDescriptors, conn.Close())
	}
	from, ok := conn.(syscall.Conn)
	if ok {
		return errors.Join(c.send(to, from), conn.Close())
	}
	near, far, err := pair()
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	go relay.Join(near, conn)
	if err := c.send(to, far); err != nil {
		relay.Reset(far)
		return err
	}
	return far.Close()
}

// send sends a descriptor.
func (c *Conn) send(to *net.UnixConn, from syscall.Conn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var sent error
	err = raw.Control(func(fd uintptr) {
		frame := []byte{byte(FrameConn), 0, 0, 0, 0}
		_, _, sent = to.WriteMsgUnix(frame, unix.UnixRights(int(fd)), nil)
	})
	return errors.Join(err, sent)
}

// read is like Read that keeps the descriptor which comes with the bytes, if there is one.
func (c *Conn) read(p []byte) (int, error) {
	from, ok := c.Conn.(*net.UnixConn)
	if !c.takes || !ok {
		return c.Conn.Read(p)
	}
	space := make([]byte, unix.CmsgSpace(4))
	n, more, _, _, err := from.ReadMsgUnix(p, space)
	if more > 0 {
		c.keep(space[:more])
	}
	if n == 0 && err == nil && len(p) > 0 {
		err = io.EOF
	}
	return n, err
}

func (c *Conn) keep(control []byte) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			c.drop()
			c.taken = os.NewFile(uintptr(fd), "connection")
		}
	}
}

// drop closes a received descriptor that nobody took.
func (c *Conn) drop() {
	if c.taken != nil {
		_ = c.taken.Close()
		c.taken = nil
	}
}

// conn returns the connection that came with the last frame.
func (c *Conn) conn() (net.Conn, error) {
	defer c.drop()
	if c.taken == nil {
		return nil, errNoDescriptors
	}
	return net.FileConn(c.taken)
}

// reader reads for Receive.
type reader struct{ c *Conn }

func (r reader) Read(p []byte) (int, error) { return r.c.read(p) }

// SendJSON writes v as one frame.
func (c *Conn) SendJSON(t Type, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send frame %q: %w", t, err)
	}
	return c.Send(t, raw)
}

// Receive reads one frame. The payload is valid until the next one.
func (c *Conn) Receive() (Type, []byte, error) {
	t, n, err := c.receiveHeader()
	if err != nil {
		return 0, nil, err
	}
	payload, err := c.receivePayload(n)
	return t, payload, err
}

func (c *Conn) receiveHeader() (Type, int, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(reader{c}, header[:]); err != nil {
		return 0, 0, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > MaxFrame {
		return 0, 0, fmt.Errorf("receive frame %q: %d bytes are over the limit of %d", header[0], n, MaxFrame)
	}
	if c.admit != nil {
		if err := c.admit(int(n)); err != nil {
			return 0, 0, err
		}
	}
	return Type(header[0]), int(n), nil
}

func (c *Conn) receivePayload(n int) ([]byte, error) {
	payload := c.room(n)
	_, err := io.ReadFull(reader{c}, payload)
	return payload, err
}

// Mover is an output that reads large frames from the connection itself. MoveFrom leaves the rest in
// from, even after an error, because the frame is then read to its end; the output reports the error.
// It isn't an [io.ReaderFrom], because those may lose bytes at an error.
type Mover interface {
	MoveFrom(from *io.LimitedReader) error
}

// movable is the smallest payload, in bytes, that is offered to a Mover.
const movable = 16 << 10

// move offers a payload of n bytes to a Mover, and discards the rest.
func (c *Conn) move(to Mover, n int) error {
	from := &io.LimitedReader{R: c.Conn, N: int64(n)}
	_ = to.MoveFrom(from)
	_, err := c.receivePayload(int(from.N))
	return err
}

// room returns memory for a payload. All but the largest payloads share it.
func (c *Conn) room(n int) []byte {
	if n > ChunkSize {
		return make([]byte, n)
	}
	if n > cap(c.received) {
		c.received = make([]byte, n)
	}
	return c.received[:n]
}

// Writer returns a writer that sends frames of type t.
func (c *Conn) Writer(t Type) io.Writer { return writer{c, t} }

type writer struct {
	c *Conn
	t Type
}

func (w writer) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += ChunkSize {
		if err := w.c.Send(w.t, p[n:min(n+ChunkSize, len(p))]); err != nil {
			return n, err
		}
	}
	return len(p), nil
}
