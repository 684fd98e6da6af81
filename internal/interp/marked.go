package interp

import (
	"bytes"
	"io"
	"sync"
)

// marked cuts the endless stream of a process into calls: the driver writes a
// mark, which no output can hold by chance, when a call's output is over. What
// comes between two calls, from a thread for instance, belongs to the next one.
type marked[S io.Writer] struct {
	fresh func() S

	mu   sync.Mutex
	mark []byte
	tail []byte // the last bytes, which may be the beginning of the mark
	out  S
	hit  chan struct{} // closed when the mark has come
}

func newMarked[S io.Writer](fresh func() S) *marked[S] {
	m := &marked[S]{fresh: fresh, out: fresh(), hit: make(chan struct{})}
	close(m.hit)
	return m
}

// begin starts a call whose output ends with mark.
func (m *marked[S]) begin(mark string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mark, m.hit = []byte(mark), make(chan struct{})
}

// Write implements io.Writer; it never fails and never blocks.
func (m *marked[S]) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := append(m.tail, p...)
	if at := bytes.Index(data, m.mark); len(m.mark) > 0 && at >= 0 {
		_, _ = m.out.Write(data[:at])
		data = data[at+len(m.mark):]
		m.mark = nil
		close(m.hit)
	}
	keep := min(len(data), max(0, len(m.mark)-1))
	_, _ = m.out.Write(data[:len(data)-keep])
	m.tail = append([]byte(nil), data[len(data)-keep:]...)
	return len(p), nil
}

// reached is closed when the current call's mark has come.
func (m *marked[S]) reached() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hit
}

// take ends the call: its output is the caller's, and the next output the next
// call's.
func (m *marked[S]) take() S {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.out
	_, _ = out.Write(m.tail)
	m.out, m.tail, m.mark = m.fresh(), nil, nil
	return out
}
