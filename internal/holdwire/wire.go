// Package holdwire is the protocol between the clients of a kept session and the
// process that holds it: one connection on a unix socket an operation, frames
// both ways, and the end of the connection is the end of the operation. Both
// ends are the same user's wisbox: it guards against accidents, not attackers.
//
//	frame    [u8 type][u32 length, big endian][payload]
//	client   Request first; then Stdin, StdinEnd, Signal, Resize of a program
//	holder   Taken first, if the request asks for it: from then on the operation
//	         may have begun, and without it nothing has; Answer or Failure, once
//	         and last; before it Stdout, Stderr and, for a started program,
//	         Started; of a call Progress
package holdwire

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
)

// Type is a frame's type.
type Type byte

// The frame types.
const (
	Request  Type = 'Q' // JSON, see Call
	Taken    Type = 'T' // the operation begins now
	Answer   Type = 'A' // JSON, the operation's own
	Failure  Type = 'F' // JSON of a tool.Error
	Started  Type = 'P' // the program runs
	Progress Type = 'p' // text: how far the call is, in place of what was said before
	Stdin    Type = 'i'
	StdinEnd Type = 'e'
	Stdout   Type = 'o'
	Stderr   Type = 'x'
	Signal   Type = 's' // a signal's name without SIG
	Resize   Type = 'w' // JSON of a sandbox.WinSize
	Kill     Type = 'k'
)

// MaxFrame bounds a frame's payload in bytes: above every answer of a tool.
const MaxFrame = 64 << 20

// ChunkSize is how much of a stream goes into one frame, in bytes.
const ChunkSize = 32 << 10

const headerSize = 5

// Conn reads frames from one goroutine and writes them from many.
type Conn struct {
	net.Conn

	mu sync.Mutex // one frame at a time
}

// New speaks the protocol on c.
func New(c net.Conn) *Conn { return &Conn{Conn: c} }

// Send writes one frame.
func (c *Conn) Send(t Type, payload []byte) error {
	if len(payload) > MaxFrame {
		return fmt.Errorf("send frame %q: %d bytes are over the limit of %d", t, len(payload), MaxFrame)
	}
	header := make([]byte, headerSize, headerSize+len(payload))
	header[0] = byte(t)
	binary.BigEndian.PutUint32(header[1:], uint32(len(payload)))
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.Write(append(header, payload...))
	return err
}

// SendJSON writes v as one frame.
func (c *Conn) SendJSON(t Type, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("send frame %q: %w", t, err)
	}
	return c.Send(t, raw)
}

// Receive reads one frame.
func (c *Conn) Receive() (Type, []byte, error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("receive frame %q: %d bytes are over the limit of %d", header[0], n, MaxFrame)
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(c, payload); err != nil {
		return 0, nil, err
	}
	return Type(header[0]), payload, nil
}

// Writer turns what is written into frames of type t.
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
