package filewire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Sizes, in bytes.
const (
	Chunk = 64 << 10           // payload of a frame at most
	Block = Chunk - headerSize // content in a frame: pipes and buffers on the way take it in full

	headerSize = 5
)

// Type is a frame's type.
type Type byte

// The types, see the package's comment.
const (
	IsAsk   Type = 'Q'
	IsData  Type = 'D'
	IsEnd   Type = 'E'
	IsStop  Type = 'S'
	IsItem  Type = 'N'
	IsEvent Type = 'V'
	IsEnded Type = 'X'
)

// ErrProtocol means that the other end broke the protocol.
var ErrProtocol = errors.New("broken protocol of files")

// Stream carries frames both ways. Each way is for one goroutine.
type Stream struct {
	r   *bufio.Reader
	w   *bufio.Writer
	buf []byte
}

// NewStream returns a Stream that has buffers of one frame.
func NewStream(r io.Reader, w io.Writer) *Stream {
	return &Stream{bufio.NewReaderSize(r, headerSize+Chunk), bufio.NewWriterSize(w, headerSize+Chunk), nil}
}

// Next reads a frame; its payload is valid until the next one. A stream that ends
// between two frames is io.EOF.
func (s *Stream) Next() (Type, []byte, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > Chunk {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, size)
	}
	if s.buf == nil {
		s.buf = make([]byte, Chunk)
	}
	if _, err := io.ReadFull(s.r, s.buf[:size]); err != nil {
		return 0, nil, fmt.Errorf("%w: half a frame: %w", ErrProtocol, err)
	}
	return Type(head[0]), s.buf[:size], nil
}

// Clean reports whether all that was read belonged to frames that were taken.
func (s *Stream) Clean() bool { return s.r.Buffered() == 0 }

// Put writes a frame of at most [Chunk] bytes. It may stay in the buffer until Flush.
func (s *Stream) Put(typ Type, payload []byte) error {
	head := [headerSize]byte{byte(typ)}
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if s.w.Available() < headerSize+len(payload) { // never half a frame
		if err := s.w.Flush(); err != nil {
			return err
		}
	}
	if _, err := s.w.Write(head[:]); err != nil {
		return err
	}
	_, err := s.w.Write(payload)
	return err
}

// PutJSON writes a message as a frame.
func (s *Stream) PutJSON(typ Type, message any) error {
	payload, err := json.Marshal(message)
	if err == nil && len(payload) > Chunk {
		err = fmt.Errorf("%w: a message of %d bytes", ErrProtocol, len(payload))
	}
	if err != nil {
		return err
	}
	return s.Put(typ, payload)
}

// Flush sends what is in the buffer.
func (s *Stream) Flush() error { return s.w.Flush() }

// Decode reads a message.
func Decode(payload []byte, message any) error {
	if err := json.Unmarshal(payload, message); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}
