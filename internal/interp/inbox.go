package interp

import (
	"encoding/binary"
	"sync"
)

// Inbox is the writer that a driver's channel ends in: frames of [u32 length, big
// endian][body]. Whatever is sent, it holds one message at most, the newest
// complete one. Its methods may be called at the same time.
type Inbox struct {
	max uint32

	mu      sync.Mutex
	divert  func([]byte) bool
	buf     []byte
	broken  bool
	arrived chan []byte // of length 1: the newest message
}

// NewInbox makes an Inbox for messages of at most max bytes. A longer one breaks the
// channel: a nil message tells so, and nothing more is taken.
func NewInbox(max uint32) *Inbox { return &Inbox{max: max, arrived: make(chan []byte, 1)} }

// Divert has take see each message first: one that it takes is no answer. It may block
// the channel. nil ends that, and waits for a take that is on.
func (f *Inbox) Divert(take func(message []byte) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.divert = take
}

// Write implements io.Writer; it never fails, and blocks only by Divert.
func (f *Inbox) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return len(p), nil
	}
	f.buf = append(f.buf, p...)
	rest := f.buf
	for {
		message, after, ok := f.cut(rest)
		if !ok {
			break
		}
		rest = after
		if f.divert == nil || !f.divert(message) {
			f.publish(message)
		}
	}
	switch {
	case f.broken:
		f.buf = nil
	case len(rest) < len(f.buf):
		f.buf = append([]byte(nil), rest...) // a copy: what was published stays as it is
	}
	return len(p), nil
}

// cut takes one whole message off the front of b.
func (f *Inbox) cut(b []byte) (message, rest []byte, ok bool) {
	if f.broken || len(b) < 4 {
		return nil, b, false
	}
	size := binary.BigEndian.Uint32(b)
	if size > f.max {
		f.broken = true
		f.publish(nil)
		return nil, nil, false
	}
	end := 4 + int(size)
	if len(b) < end {
		return nil, b, false
	}
	return b[4:end:end], b[end:], true
}

// publish replaces what nobody has read: code may send as much as it likes.
func (f *Inbox) publish(message []byte) {
	select {
	case <-f.arrived:
	default:
	}
	f.arrived <- message
}

// Arrived gives the newest message once it is there; nil is the broken channel.
func (f *Inbox) Arrived() <-chan []byte { return f.arrived }

// Take gives the newest message, or nil.
func (f *Inbox) Take() []byte {
	select {
	case m := <-f.arrived:
		return m
	default:
		return nil
	}
}
