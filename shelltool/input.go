package shelltool

import (
	"context"
	"io"
	"sync"
)

// maxUnread is the maximum of input bytes that wait for a program that doesn't read.
const maxUnread = 1 << 20

// input is a program's stdin. Its writer never has to wait.
type input struct {
	mu      sync.Mutex
	ready   sync.Cond
	pending []byte
	closed  bool

	terminal bool // the program reads it line by line
	line     int  // bytes after the last line end, on a terminal
	long     bool // a line exceeded maxLine
}

// maxLine is the longest line that a terminal keeps while a program reads whole lines from it.
const maxLine = 4095

// endOfFile ends a terminal's input. Typed after a part of a line, it only ends that part.
const endOfFile = '\x04'

func newInput(first string, terminal bool) *input {
	in := &input{terminal: terminal}
	in.append([]byte(first))
	in.ready.L = &in.mu
	return in
}

// Read implements io.Reader: it blocks until there is input or it is closed.
func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.pending) == 0 && !in.closed {
		in.ready.Wait()
	}
	if len(in.pending) == 0 {
		return 0, io.EOF
	}
	n := copy(p, in.pending)
	in.pending = in.pending[n:]
	in.ready.Broadcast()
	return n, nil
}

// add appends data and, if eof is set, closes the input. open is false if the input was closed
// before, room is false if too much input waits already.
func (in *input) add(data string, eof bool) (open, room bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return false, true
	}
	if len(in.pending)+len(data) > maxUnread {
		return true, false
	}
	in.append([]byte(data))
	if eof && in.line > 0 { // the sandbox types one more
		in.append([]byte{endOfFile})
	}
	in.closed = eof
	in.ready.Broadcast()
	return true, true
}

func (in *input) append(data []byte) {
	in.pending = append(in.pending, data...)
	if !in.terminal {
		return
	}
	for _, b := range data {
		if in.line++; b == '\n' || b == '\r' || b == endOfFile {
			in.line = 0
		}
		in.long = in.long || in.line > maxLine
	}
}

// tooLong reports, once, whether a line was longer than a terminal keeps.
func (in *input) tooLong() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	long := in.long
	in.long = false
	return long
}

// put waits for room and appends data. It returns false after the end of the input or of ctx.
func (in *input) put(ctx context.Context, data []byte) bool {
	stop := context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.ready.Broadcast()
	})
	defer stop()
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.closed && ctx.Err() == nil && len(in.pending)+len(data) > maxUnread {
		in.ready.Wait()
	}
	if in.closed || ctx.Err() != nil {
		return false
	}
	in.append(data)
	in.ready.Broadcast()
	return true
}

func (in *input) open() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !in.closed
}

// empty reports whether there is no input, and none will come.
func (in *input) empty() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.closed && len(in.pending) == 0
}

// close ends the input and drops unread bytes.
func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed, in.pending = true, nil
	in.ready.Broadcast()
}
