package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"github.com/wisbox/wisbox/agent/filewire"
	"github.com/wisbox/wisbox/sandbox"
)

// reader is an open file.
type reader struct {
	*operation
	info sandbox.FileInfo
	left int64  // bytes that may still come, -1 for any
	rest []byte // of the last frame
	err  error  // the operation has ended
}

// Open implements [sandbox.FileSystem].
func (f *FS) Open(ctx context.Context, path string, opts sandbox.OpenOptions) (sandbox.FileReader, error) {
	o, err := f.begin(ctx, f.streams, &filewire.Ask{
		Do: filewire.Read, Path: []byte(path), Offset: opts.Offset, Length: opts.Length, Any: opts.Any,
	})
	if err != nil {
		return nil, err
	}
	info, err := o.item(path)
	if err != nil {
		return nil, o.end(err)
	}
	r := &reader{operation: o, info: info, left: opts.Length}
	if opts.Length == 0 {
		r.left = -1
	}
	return r, nil
}

func (r *reader) Info() sandbox.FileInfo { return r.info }

func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fetch()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// fetch takes the next frame.
func (r *reader) fetch() {
	typ, payload, err := r.next()
	if err == nil && (typ != filewire.IsData || r.left >= 0 && int64(len(payload)) > r.left) {
		err = r.lost(protocol("more than was to be read"))
	}
	if err != nil {
		if r.err = r.end(err); r.err == nil {
			r.err = io.EOF
		}
		return
	}
	if r.left >= 0 {
		r.left -= int64(len(payload))
	}
	r.rest = payload
}

// Close ends the reading.
func (r *reader) Close() error {
	if r.err == nil {
		r.err = fs.ErrClosed
		_ = r.end(fs.ErrClosed)
	}
	r.rest = nil
	return nil
}

// Write implements [sandbox.FileSystem].
func (f *FS) Write(ctx context.Context, path string, from io.Reader, opts sandbox.WriteOptions) error {
	ask := &filewire.Ask{
		Do: filewire.Write, Path: []byte(path), How: string(opts.How), Mode: uint32(opts.Mode.Perm()),
		Parents: opts.Parents, Exclusive: opts.Exclusive, Set: map[string][]byte{},
	}
	if ask.How == "" {
		ask.How = filewire.Replace
	}
	for name, value := range opts.Attrs {
		ask.Set[name] = []byte(value)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", ask.Do, printable(path), err)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx, to clean up
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, end) })()
	o, err := f.begin(life, f.streams, ask)
	if err == nil {
		err = o.write(ctx, from)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", ask.Do, printable(path), ctx.Err())
	}
	return err
}

// write copies everything, until the process ends the operation.
func (o *operation) write(ctx context.Context, from io.Reader) error {
	answer := make(chan error, 1)
	go func() { answer <- o.only() }()
	early, broken := o.pass(ctx, from, answer)
	err := early
	if err == nil {
		err = <-answer
	}
	own := asFailed(err)
	if errors.Is(broken, sandbox.ErrInterrupted) {
		o.kill()
	}
	switch {
	case own != nil && own.err == nil && (early != nil || broken != nil):
		err = o.lost(protocol("success before the end"))
	case own != nil && errors.Is(own.err, errStopped) && broken != nil:
		own.err = broken
	}
	return o.end(err)
}

// pass copies until the reader's end, which it reports to the process, or until the answer arrives, which it returns.
// broken is the reason for an incomplete copy.
func (o *operation) pass(ctx context.Context, from io.Reader, answer chan error) (early, broken error) {
	buf := make([]byte, filewire.Block)
	for {
		n, err := from.Read(buf)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		select {
		case early = <-answer:
			return early, o.send(filewire.IsStop, nil)
		default:
		}
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return nil, o.send(filewire.IsEnd, nil)
		case err != nil && !errors.Is(err, io.EOF):
			_ = o.send(filewire.IsStop, nil)
			return nil, err
		}
		if err := o.send(filewire.IsData, buf[:n]); err != nil {
			return nil, err
		}
	}
}

// watch is a watch that has begun.
type watch struct {
	*operation
	mu    sync.Mutex // one end
	ended bool
	err   error // error of later calls of Next; only for its goroutine
}

// Watch implements [sandbox.FileSystem].
func (f *FS) Watch(ctx context.Context, path string, opts sandbox.WatchOptions) (sandbox.FileWatch, error) {
	o, err := f.begin(ctx, f.watches, &filewire.Ask{
		Do: filewire.Watch, Path: []byte(path), Recursive: opts.Recursive, Limit: bounded(opts.Limit, maxWatched),
	})
	if err != nil {
		return nil, err
	}
	if _, err := o.item(path); err != nil {
		return nil, o.end(err)
	}
	return &watch{operation: o}, nil
}

func (w *watch) Next() (sandbox.FileEvent, error) {
	if w.err != nil {
		return sandbox.FileEvent{}, w.err
	}
	event, err := w.event()
	if err != nil {
		w.err = w.finish(err)
	}
	return event, w.err
}

func (w *watch) event() (sandbox.FileEvent, error) {
	typ, payload, err := w.next()
	if err != nil {
		return sandbox.FileEvent{}, err
	}
	if typ != filewire.IsEvent {
		return sandbox.FileEvent{}, w.lost(protocol("something else than an event"))
	}
	event, err := eventOf(payload)
	if err != nil {
		err = w.lost(err)
	}
	return event, err
}

// finish ends the operation once.
func (w *watch) finish(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return fs.ErrClosed
	}
	w.ended = true
	if err := w.end(err); err != nil {
		return err
	}
	return io.EOF
}

// Close ends the watch, and a Next that waits.
func (w *watch) Close() error {
	_ = w.finish(fs.ErrClosed)
	return nil
}
