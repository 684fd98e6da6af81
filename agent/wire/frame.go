package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the protocol's. Another one in a hello means that the other end is of
// another wisbox.
const Version = 7

// Sizes of the protocol, in bytes.
const (
	MaxFrame   = 1 << 20   // payload of a frame
	Chunk      = 64 << 10  // data in one frame
	Window     = 256 << 10 // data in flight on one channel
	HeaderSize = 9

	SocketWindow = 128 << 10 // data in flight on one socket, in each direction
	MaxOpened    = 1 << 10   // payload of an opened frame
)

// Type is a frame's type, without the channel for those that have one.
type Type uint8

// The types, see the package's comment.
const (
	Run    Type = 0x01
	Kill   Type = 0x02
	Signal Type = 0x03
	Resize Type = 0x04
	Source Type = 0x05
	Ping   Type = 0x06
	Limits Type = 0x07
	Leave  Type = 0x08
	Put    Type = 0x09
	Attach Type = 0x0a
	List   Type = 0x0b
	Port   Type = 0x0c
	Taken  Type = 0x0d

	Suspend Type = 0x0e
	Resume  Type = 0x0f

	Data   Type = 0x10
	Credit Type = 0x20
	Tail   Type = 0x30

	IsHello   Type = 0x41
	Pong      Type = 0x42
	LimitsAre Type = 0x43
	Started   Type = 0x44
	Exited    Type = 0x45
	Done      Type = 0x46
	Listed    Type = 0x47
	PortIs    Type = 0x48

	SocketOpen   Type = 0x50
	SocketOpened Type = 0x51
	SocketData   Type = 0x52
	SocketCredit Type = 0x53
	SocketEnd    Type = 0x54
	SocketClose  Type = 0x55
	SocketReset  Type = 0x56
	SocketClosed Type = 0x57
)

// Requests for sockets, and the first byte of the answers that bring descriptors.
const (
	AskListen  = "listen"
	AskUDP     = "udp"
	AskSocket  = "socket"
	AskSix     = "socket6"
	AskAccept  = "accept"
	AskConnect = "connect"
	Granted    = "+"
	Refused    = "-"
)

// Alone is the payload of a list frame from the sandbox's only owner.
const Alone = "alone"

// StartedSize is the size of a started frame's payload.
const StartedSize = 4 + 8

// Channel is one stream of a call; the number is the program's descriptor.
type Channel uint8

// The channels.
const (
	Stdin Channel = iota
	Stdout
	Stderr
	CtlIn
	CtlOut
	Channels
)

// ErrProtocol means that the other end broke the protocol.
var ErrProtocol = errors.New("the agent broke its protocol")

// Errorf makes an error that wraps [ErrProtocol].
func Errorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Frame is one frame as read. The payload is valid until the next read.
type Frame struct {
	Type    Type
	Call    uint32
	Payload []byte
}

// Split returns the type without its channel, and the channel.
func (f Frame) Split() (Type, Channel) {
	if f.Type >= Data && f.Type < IsHello {
		return f.Type & 0xf0, Channel(f.Type & 0x0f)
	}
	return f.Type, 0
}

// ahead is how many bytes a Reader may read beyond a frame: many small frames come at once.
const ahead = 4 << 10

// Reader reads frames from a stream. It is for one goroutine.
type Reader struct {
	r   *bufio.Reader
	buf []byte
}

// NewReader returns a Reader on r that reads few bytes ahead: a large payload goes straight to its memory.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, ahead)} }

// Next reads one frame. A stream that ends between two frames is io.EOF; a frame
// that is too large wraps [ErrProtocol].
func (r *Reader) Next() (Frame, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Frame{}, err
	}
	size, typ, call := Header(head[:])
	if size > MaxFrame {
		return Frame{}, Errorf("a frame of %d bytes", size)
	}
	if size > cap(r.buf) {
		r.buf = make([]byte, size)
	}
	r.buf = r.buf[:size]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return Frame{}, err
	}
	return Frame{typ, call, r.buf}, nil
}

// Swap leaves the payload of the last frame to its caller. The Reader goes on with other memory.
func (r *Reader) Swap(other []byte) (payload []byte) {
	payload, r.buf = r.buf, other
	return payload
}

// Header takes a frame's header apart; b has [HeaderSize] bytes.
func Header(b []byte) (size int, typ Type, call uint32) {
	return int(binary.BigEndian.Uint32(b)), Type(b[4]), binary.BigEndian.Uint32(b[5:])
}

// Append appends a frame to b.
func Append(b []byte, typ Type, call uint32, payload []byte) []byte {
	return append(AppendHeader(b, typ, call, len(payload)), payload...)
}

// AppendHeader appends the header of a frame whose payload has size bytes.
func AppendHeader(b []byte, typ Type, call uint32, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = append(b, byte(typ))
	return binary.BigEndian.AppendUint32(b, call)
}
