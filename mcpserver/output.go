package mcpserver

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// output writes lines one after the other, and counts the bytes that wait to be written.
type output struct {
	w      io.Writer
	free   chan struct{} // has one token while nobody writes
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	pending int
	fewer   chan struct{} // closed and replaced when pending falls
}

func newOutput(w io.Writer) *output {
	o := &output{w: w, free: make(chan struct{}, 1), closed: make(chan struct{}), fewer: make(chan struct{})}
	o.free <- struct{}{}
	return o
}

// write writes one message as one line. If ctx ends before its turn, it drops the message; later ctx has no effect.
func (o *output) write(ctx context.Context, raw []byte) error {
	text := append(plain(raw), '\n')
	o.add(len(text))
	defer o.add(-len(text))
	select {
	case <-o.free:
	case <-ctx.Done():
		return ctx.Err()
	case <-o.closed:
		return errClosed
	}
	written := make(chan error, 1)
	go func() {
		_, err := o.w.Write(text)
		written <- err
		o.free <- struct{}{}
	}()
	select {
	case err := <-written:
		return err
	case <-o.closed: // a client that doesn't read must not block us
		return errClosed
	}
}

func (o *output) add(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pending += n
	if n < 0 {
		close(o.fewer)
		o.fewer = make(chan struct{})
	}
}

func (o *output) awaitTaken(ctx context.Context) error {
	for {
		o.mu.Lock()
		taken, fewer := o.pending < maxUnwritten, o.fewer
		o.mu.Unlock()
		if taken {
			return nil
		}
		select {
		case <-fewer:
		case <-o.closed:
			return errClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (o *output) close() { o.once.Do(func() { close(o.closed) }) }

// plain escapes the control characters that JSON allows (DEL and the C1 set), so that a line is harmless on a terminal.
// In JSON they occur only in strings.
func plain(raw []byte) []byte {
	if bytes.IndexByte(raw, 0x7f) < 0 && bytes.IndexByte(raw, 0xc2) < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw)+64)
	for i := 0; i < len(raw); i++ {
		switch b := raw[i]; {
		case b == 0x7f:
			out = append(out, `\u007f`...)
		case b == 0xc2 && i+1 < len(raw) && raw[i+1] >= 0x80 && raw[i+1] < 0xa0:
			i++
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[raw[i]>>4], "0123456789abcdef"[raw[i]&15])
		default:
			out = append(out, b)
		}
	}
	return out
}
