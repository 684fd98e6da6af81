package agent

import (
	"encoding/binary"
	"io"
	"sync"
	"time"

	"github.com/wisbox/wisbox/agent/wire"
)

// outStream carries one stream from the agent to a writer. The bytes that
// it holds are bounded by the grant. The goroutine that writes exists only while
// there is something to write.
type outStream struct {
	call *call
	ch   wire.Channel
	w    io.Writer

	mu      sync.Mutex
	buf     []byte        // granted and not yet written
	spare   []byte        // the other buffer
	granted int           // bytes that the agent may still send
	writing chan struct{} // closed when the writing goroutine ends; nil without one
	closed  bool          // no more credit is of use
	dead    bool          // the writer is not called any more
	taken   int64         // bytes that ever came
	written int64         // of them
	moved   sync.Cond     // written or dead has changed

	first []*outStream // earlier data of these streams is written first
}

func newOutStream(c *call, ch wire.Channel, w io.Writer) *outStream {
	s := &outStream{call: c, ch: ch, w: w, granted: wire.Window}
	s.moved.L = &s.mu
	return s
}

// swapped is the smallest payload, in bytes, whose memory a stream takes rather than copy it.
const swapped = 16 << 10

// put adds the payload of the reader's last frame. It never waits.
func (s *outStream) put(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(data) > s.granted {
		return wire.Errorf("more data than granted on channel %d", s.ch)
	}
	s.granted -= len(data)
	if s.dead {
		s.refill()
		return nil
	}
	s.taken += int64(len(data))
	if len(s.buf) == 0 && len(data) >= swapped {
		s.buf = s.call.conn.frames.Swap(s.buf)
	} else {
		s.buf = append(s.buf, data...)
	}
	if s.writing == nil && len(s.buf) > 0 {
		s.writing = make(chan struct{})
		go s.write(s.writing)
	}
	return nil
}

func (s *outStream) write(done chan struct{}) {
	defer close(done)
	for {
		data, credit := s.next()
		if credit > 0 {
			s.send(credit)
		}
		if data == nil {
			return
		}
		for _, other := range s.first {
			other.flush()
		}
		if _, err := s.w.Write(data); err != nil {
			s.discard()
		}
	}
}

// next swaps the buffers: it returns the data to write, nil if there is none, and the credit for the data written
// before.
func (s *outStream) next() (data []byte, credit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		s.writing = nil
		return nil, 0
	}
	s.written = s.taken - int64(len(s.buf))
	s.moved.Broadcast()
	data, s.buf, s.spare = s.buf, s.spare[:0], s.buf
	if owed := wire.Window - s.granted - len(data); owed >= wire.Window/4 && !s.closed {
		credit = owed
		s.granted += credit
	}
	if len(data) == 0 {
		s.writing = nil
		return nil, credit
	}
	return data, credit
}

// flush waits until all data so far is written, or never will be.
func (s *outStream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for goal := s.taken; s.written < goal && !s.dead; {
		s.moved.Wait()
	}
}

// discard gives up the writer, which may be blocked: later data is discarded and granted again at once.
func (s *outStream) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead, s.buf = true, nil
	s.moved.Broadcast()
	s.refill()
}

// refill grants again all data that a dead stream has discarded. The caller must hold s.mu.
func (s *outStream) refill() {
	credit := wire.Window - s.granted
	if credit > 0 && !s.closed {
		s.granted = wire.Window
		go s.send(credit)
	}
}

func (s *outStream) send(credit int) {
	payload := binary.BigEndian.AppendUint32(nil, uint32(credit))
	_ = s.call.conn.send(wire.Credit|wire.Type(s.ch), s.call.number, payload)
}

func (s *outStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// settle waits until all is written; for a writer that was given up, not long.
func (s *outStream) settle() {
	s.mu.Lock()
	writing, dead := s.writing, s.dead
	s.mu.Unlock()
	switch {
	case writing == nil:
	case dead:
		select {
		case <-writing:
		case <-time.After(grace):
		}
	default:
		<-writing
	}
}

// inStream carries one stream from a reader to the agent, as far as granted.
type inStream struct {
	call *call
	ch   wire.Channel
	r    io.Reader

	mu      sync.Mutex
	changed sync.Cond // credit came, or the call has ended
	credit  int
	closed  bool
}

func newInStream(c *call, ch wire.Channel, r io.Reader) *inStream {
	s := &inStream{call: c, ch: ch, r: r, credit: wire.Window}
	s.changed.L = &s.mu
	return s
}

// copy runs until the reader or the call ends; a reader that blocks keeps its
// goroutine, as nothing can interrupt a Read.
func (s *inStream) copy() {
	buf := make([]byte, 32<<10)
	for {
		n := s.room(len(buf))
		if n == 0 {
			return
		}
		n, err := s.r.Read(buf[:n])
		if n > 0 && !s.pass(buf[:n]) {
			return
		}
		if err != nil {
			_ = s.call.conn.send(wire.Data|wire.Type(s.ch), s.call.number, nil)
			return
		}
	}
}

// room waits for credit and returns how much of size may be read; 0 is the end.
func (s *inStream) room(size int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.credit == 0 && !s.closed {
		s.changed.Wait()
	}
	if s.closed {
		return 0
	}
	return min(s.credit, size)
}

func (s *inStream) pass(data []byte) bool {
	s.mu.Lock()
	s.credit -= len(data)
	closed := s.closed
	s.mu.Unlock()
	return !closed && s.call.conn.send(wire.Data|wire.Type(s.ch), s.call.number, data) == nil
}

// grant adds credit from the agent, which must not exceed the used credit.
func (s *inStream) grant(n uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if int64(n) > int64(wire.Window-s.credit) {
		return wire.Errorf("more credit than was used on channel %d", s.ch)
	}
	s.credit += int(n)
	s.changed.Broadcast()
	return nil
}

func (s *inStream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
}
