package lisp

import (
	"bytes"
	"strings"
	"sync"
)

// marked cuts the endless stream of SBCL into calls: the driver writes a mark,
// which no output can hold by chance, when a call's output is over. What comes
// between two calls, from a thread for instance, belongs to the next one.
type marked struct {
	mu   sync.Mutex
	mark []byte
	tail []byte // the last bytes, which may be the beginning of the mark
	out  head
	hit  chan struct{} // closed when the mark has come
}

func newMarked() *marked {
	m := &marked{out: head{limit: defaultLimits.output}, hit: make(chan struct{})}
	close(m.hit)
	return m
}

// begin starts a call whose output ends with mark and of which limit characters
// are kept.
func (m *marked) begin(mark string, limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark, m.hit, m.out.limit = []byte(mark), make(chan struct{}), limit
}

// Write implements io.Writer; it never fails and never blocks.
func (m *marked) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := append(m.tail, p...)
	if at := bytes.Index(data, m.mark); len(m.mark) > 0 && at >= 0 {
		m.out.write(data[:at])
		data = data[at+len(m.mark):]
		m.mark = nil
		close(m.hit)
	}
	keep := min(len(data), max(0, len(m.mark)-1))
	m.out.write(data[:len(data)-keep])
	m.tail = append([]byte(nil), data[len(data)-keep:]...)
	return len(p), nil
}

// reached is closed when the current call's mark has come.
func (m *marked) reached() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hit
}

// text ends the call: its output is the caller's, and the next output the next
// call's. dropped is how many characters are missing.
func (m *marked) text() (text string, dropped int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.write(m.tail)
	out := m.out
	m.out, m.tail, m.mark = head{limit: out.limit}, nil, nil
	return out.text(), out.dropped
}

// head keeps the first characters of a text and counts the others.
type head struct {
	limit   int
	chars   int
	kept    []byte
	dropped int64
}

func (h *head) write(p []byte) {
	for i, b := range p {
		if b&0xc0 == 0x80 && len(h.kept)+i < 4*h.limit { // the rest of a character
			continue
		}
		if h.chars < h.limit {
			h.chars++
			continue
		}
		if h.dropped == 0 {
			h.kept = append(h.kept, p[:i]...)
		}
		h.dropped++
	}
	if h.dropped == 0 {
		h.kept = append(h.kept, p...)
	}
}

// text is valid UTF-8 whatever was written.
func (h *head) text() string { return strings.ToValidUTF8(string(h.kept), "\uFFFD") }
