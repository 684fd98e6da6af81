package far

import (
	"encoding/binary"
	"errors"
	"io"
	"time"
)

// maxPings bounds the other side's pings within pingEvery: a wisbox sends one.
const maxPings = 8

var (
	errPings  = errors.New("the other side pings more often than any wisbox does")
	errStream = errors.New("the other side opens a connection, which only clients do")
)

// frames parses yamux's frames as they pass, and ends a stream whose other side pings too often:
// for each ping yamux keeps a goroutine until its answer is written, and a side that reads nothing
// delays that. Answers to all other frames are written where yamux reads or accepts, so yamux reads
// no further until they are sent.
type frames struct {
	in     io.Reader
	client bool // this is the client's side

	head  [12]byte // of the next frame
	have  int
	body  uint32 // remaining bytes of a frame's data
	since time.Time
	n     int // pings since then
}

// Read implements io.Reader.
func (f *frames) Read(b []byte) (int, error) {
	n, err := f.in.Read(b)
	if refused := f.look(b[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

func (f *frames) look(b []byte) error {
	for len(b) > 0 {
		if f.body > 0 {
			n := min(uint32(len(b)), f.body)
			b, f.body = b[n:], f.body-n
			continue
		}
		n := copy(f.head[f.have:], b)
		b, f.have = b[n:], f.have+n
		if f.have < len(f.head) {
			return nil
		}
		f.have = 0
		if err := f.frame(); err != nil {
			return err
		}
	}
	return nil
}

// frame checks the frame whose header is complete.
func (f *frames) frame() error {
	const data, ping, syn = 0, 2, 1 // of yamux's specification
	kind, begins := f.head[1], binary.BigEndian.Uint16(f.head[2:])&syn != 0
	if kind == data {
		f.body = binary.BigEndian.Uint32(f.head[8:])
	}
	switch {
	case begins && kind == ping:
		return f.ping()
	case begins && f.client:
		return errStream
	}
	return nil
}

func (f *frames) ping() error {
	if time.Since(f.since) > pingEvery {
		f.since, f.n = time.Now(), 0
	}
	if f.n++; f.n > maxPings {
		return errPings
	}
	return nil
}
