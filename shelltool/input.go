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
}

func newInput(first string) *input {
	in := &input{pending: []byte(first)}
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
	in.pending = append(in.pending, data...)
	in.closed = eof
	in.ready.Broadcast()
	return true, true
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
	in.pending = append(in.pending, data...)
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
