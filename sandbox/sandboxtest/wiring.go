package sandboxtest

import (
	"io"
	"os"
	"sync"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
)

// wiring collects the descriptors of a program that is about to start, in their order, so that a failure closes them
// all.
type wiring struct {
	child []*os.File // the program's ends, from descriptor 0
	ours  []*os.File
	pumps []func() // serve our ends
	err   error    // the first failure
}

// input adds a pipe that the program reads and returns its other end.
func (w *wiring) input() *os.File {
	r, wr := w.pipe()
	w.child, w.ours = append(w.child, r), append(w.ours, wr)
	return wr
}

// output adds a pipe that the program writes and returns its other end.
func (w *wiring) output() *os.File {
	r, wr := w.pipe()
	w.child, w.ours = append(w.child, wr), append(w.ours, r)
	return r
}

func (w *wiring) null() {
	f, err := os.Open(os.DevNull)
	w.note(err)
	w.child = append(w.child, f)
}

func (w *wiring) terminal(size sandbox.WinSize) (master, slave *os.File) {
	master, slave, err := pty.Open()
	w.note(err)
	if err == nil && size != (sandbox.WinSize{}) {
		w.note(pty.Setsize(master, &pty.Winsize{Cols: size.Cols, Rows: size.Rows}))
	}
	w.ours = append(w.ours, master)
	return master, slave
}

func (w *wiring) pipe() (r, wr *os.File) {
	r, wr, err := os.Pipe()
	w.note(err)
	return r, wr
}

func (w *wiring) note(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *wiring) closeChildEnds() { closeAll(w.child) }
func (w *wiring) closeOurEnds()   { closeAll(w.ours) }

// closeAll closes files; it ignores nil and closed ones.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// source is a stream from a program.
type source struct {
	from  *os.File
	to    *counter
	first []*source // data written to these earlier is passed on first

	mu sync.Mutex // held from the read until the write returns
}

// pump passes on all data until the end.
func (s *source) pump() {
	defer s.from.Close()
	raw, err := s.from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Read(func(fd uintptr) bool {
		for s.ready(fd) {
			for _, other := range s.first {
				other.catchUp()
			}
			if s.move(fd) == 0 {
				return true
			}
		}
		return false
	})
}

// ready reports whether a read now wouldn't wait.
func (s *source) ready(fd uintptr) bool {
	n, err := retry.Interrupted(func() (int, error) {
		return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return n > 0 || err != nil
}

// catchUp passes on the data that is there, after any piece in progress.
func (s *source) catchUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	raw, err := s.from.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		held, err := unix.IoctlGetInt(int(fd), waitingBytes)
		for n := 0; err == nil && held > 0; held -= n {
			if n = s.piece(fd); n <= 0 {
				return
			}
		}
	})
}

func (s *source) move(fd uintptr) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.piece(fd)
}

// piece passes on one piece and returns its size: 0 is the end, a negative number means no data now. The caller holds
// s.mu.
func (s *source) piece(fd uintptr) int {
	var data [32 << 10]byte
	n, err := unix.Read(int(fd), data[:])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return -1
	case n <= 0 || err != nil:
		return 0
	}
	_, _ = s.to.Write(data[:n])
	return n
}

// counter is the source's side of a stream: it counts, forwards and cuts as sandbox.Capture describes, and keeps
// reading if the receiver fails.
type counter struct {
	to      io.Writer
	capture *sandbox.Capture
	n       int64
	tail    []byte
}

func (c *counter) Write(p []byte) (int, error) {
	forward := p
	if c.capture != nil {
		forward = p[:max(0, min(int64(len(p)), c.capture.Forward-c.n))]
	}
	c.n += int64(len(p))
	c.keep(p[len(forward):])
	if c.to != nil && len(forward) > 0 {
		if _, err := c.to.Write(forward); err != nil {
			c.to = nil
		}
	}
	return len(p), nil
}

func (c *counter) keep(rest []byte) {
	if c.capture == nil || len(rest) == 0 {
		return
	}
	c.tail = append(c.tail, rest...)
	if over := len(c.tail) - c.capture.Tail; over > 0 {
		c.tail = append(c.tail[:0], c.tail[over:]...)
	}
}

func (c *counter) stream() sandbox.Stream { return sandbox.Stream{Bytes: c.n, Tail: c.tail} }
