package sandboxtest

import (
	"io"
	"os"

	"github.com/creack/pty"

	"github.com/wisbox/wisbox/sandbox"
)

// wiring collects the descriptors of a program that is about to start, in
// their order, so that a failure half-way closes them all.
type wiring struct {
	child []*os.File // the program's ends, from descriptor 0
	ours  []*os.File
	pumps []func() // start serving our ends
	err   error    // the first failure
}

// input adds a pipe that the program reads and gives its other end.
func (w *wiring) input() *os.File {
	r, wr := w.pipe()
	w.child, w.ours = append(w.child, r), append(w.ours, wr)
	return wr
}

// output adds a pipe that the program writes and gives its other end.
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

// closeAll closes files; nil ones and a second close are no matter.
func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// counter is the source's side of a stream: it counts, forwards and cuts as
// sandbox.Capture says, and never stops reading when the receiver fails.
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
