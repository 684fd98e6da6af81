package lisp

import (
	"encoding/binary"
	"sync"
)

// frames is the writer that the driver's channel ends in. It holds one message
// at most and the newest complete one, whatever is sent.
type frames struct {
	mu      sync.Mutex
	buf     []byte
	broken  bool
	arrived chan []byte // of length 1: the newest message
}

func newFrames() *frames { return &frames{arrived: make(chan []byte, 1)} }

// Write implements io.Writer; it never fails and never blocks.
func (f *frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return len(p), nil
	}
	f.buf = append(f.buf, p...)
	for f.next() {
	}
	return len(p), nil
}

// next takes one whole message out of the buffer.
func (f *frames) next() bool {
	if len(f.buf) < 4 {
		return false
	}
	size := binary.BigEndian.Uint32(f.buf)
	if size > maxMessage {
		f.broken, f.buf = true, nil
		f.publish(nil)
		return false
	}
	end := 4 + int(size)
	if len(f.buf) < end {
		return false
	}
	f.publish(f.buf[4:end:end])
	f.buf = append([]byte(nil), f.buf[end:]...)
	return true
}

// publish replaces what nobody has read: code may send as much as it likes.
func (f *frames) publish(message []byte) {
	select {
	case <-f.arrived:
	default:
	}
	f.arrived <- message
}

// take gives the newest message, or nil.
func (f *frames) take() []byte {
	select {
	case m := <-f.arrived:
		return m
	default:
		return nil
	}
}
