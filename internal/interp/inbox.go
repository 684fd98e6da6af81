package interp

import (
	"encoding/binary"
	"sync"
)

// Inbox is the writer at the end of a driver's channel: it receives frames of [u32 length, big
// endian][body]. It holds at most one message, the newest complete one. Its methods may be called
// from several goroutines at once.
type Inbox struct {
	max uint32

	mu      sync.Mutex
	divert  func([]byte) bool
	buf     []byte
	broken  bool
	arrived chan []byte // of length 1: the newest message
}

// NewInbox returns an Inbox for messages of at most max bytes. A longer message, or one of very many values, breaks the
// channel: then Arrived delivers a nil message, and the Inbox accepts nothing more.
func NewInbox(max uint32) *Inbox { return &Inbox{max: max, arrived: make(chan []byte, 1)} }

// Divert calls take with each message first. If take returns true, the message isn't an answer.
// take may block the channel. Divert(nil) ends this, after waiting for a running take.
func (f *Inbox) Divert(take func(message []byte) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.divert = take
}

// Write implements io.Writer. It never fails, and blocks only through Divert.
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
		f.buf = append([]byte(nil), rest...) // a copy, because the published message must not change
	}
	return len(p), nil
}

// maxValues bounds the values of a message, each of which takes up to 100 bytes when it is read: three bytes of JSON can
// be one. An answer of an interpreter has at most 20,000 variables.
const maxValues = 200_000

// valuesIn counts the values of a JSON text at most.
func valuesIn(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == ',' || c == ':' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// cut splits the first complete message from b.
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
	if valuesIn(b[4:end]) > maxValues {
		f.broken = true
		f.publish(nil)
		return nil, nil, false
	}
	return b[4:end:end], b[end:], true
}

// publish replaces an unread message: code may send as many as it likes.
func (f *Inbox) publish(message []byte) {
	select {
	case <-f.arrived:
	default:
	}
	f.arrived <- message
}

// Arrived returns a channel for the newest message; nil reports a broken channel.
func (f *Inbox) Arrived() <-chan []byte { return f.arrived }

// Take returns the newest message, or nil.
func (f *Inbox) Take() []byte {
	select {
	case m := <-f.arrived:
		return m
	default:
		return nil
	}
}
