package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

// Sizes of the protocol, in bytes; agent.py has the same.
const (
	maxFrame   = 1 << 20   // payload of a frame
	chunk      = 64 << 10  // data in one frame
	window     = 256 << 10 // data in flight on one channel
	headerSize = 9
)

// frameType is a frame's type, without the channel for those that have one.
type frameType uint8

const (
	typeRun    frameType = 0x01
	typeKill   frameType = 0x02
	typeSignal frameType = 0x03
	typeResize frameType = 0x04
	typeSource frameType = 0x05
	typePing   frameType = 0x06
	typeLimits frameType = 0x07
	typeMove   frameType = 0x08

	typeData   frameType = 0x10
	typeCredit frameType = 0x20
	typeTail   frameType = 0x30

	typeHello     frameType = 0x41
	typePong      frameType = 0x42
	typeLimitsAre frameType = 0x43
	typeStarted   frameType = 0x44
	typeExit      frameType = 0x45
)

// channel is one stream of a call; the number is the program's descriptor.
type channel uint8

const (
	chanStdin channel = iota
	chanStdout
	chanStderr
	chanCtlIn
	chanCtlOut
	channels
)

var errProtocol = errors.New("the agent broke its protocol")

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errProtocol, fmt.Sprintf(format, args...))
}

// frame is one frame as read. The payload is valid until the next read.
type frame struct {
	typ     frameType
	call    uint32
	payload []byte
}

// split gives the type without its channel.
func (f frame) split() (frameType, channel) {
	if f.typ >= typeData && f.typ < typeHello {
		return f.typ & 0xf0, channel(f.typ & 0x0f)
	}
	return f.typ, 0
}

// frameReader reads frames from the hostile side.
type frameReader struct {
	r   *bufio.Reader
	buf []byte
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, chunk)}
}

// next reads one frame. A stream that ends between two frames is io.EOF.
func (fr *frameReader) next() (frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(fr.r, head[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size > maxFrame {
		return frame{}, protocolError("a frame of %d bytes", size)
	}
	if int(size) > cap(fr.buf) {
		fr.buf = make([]byte, size)
	}
	fr.buf = fr.buf[:size]
	if _, err := io.ReadFull(fr.r, fr.buf); err != nil {
		return frame{}, err
	}
	return frame{frameType(head[4]), binary.BigEndian.Uint32(head[5:]), fr.buf}, nil
}

// frameWriter writes frames, one Write each, from many goroutines.
type frameWriter struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte // guarded by mu
}

func (fw *frameWriter) write(typ frameType, call uint32, payload []byte) error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.buf = appendFrame(fw.buf[:0], typ, call, payload)
	_, err := fw.w.Write(fw.buf)
	return err
}

func appendFrame(b []byte, typ frameType, call uint32, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, byte(typ))
	b = binary.BigEndian.AppendUint32(b, call)
	return append(b, payload...)
}
