package evaltool

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/wisbox/wisbox/internal/patience"
)

// Feed passes the parts of one evaluation from its engine to a reader. It buffers about 1 MiB, and
// the engine waits for a slower reader. After [Feed.Release], when nobody waits for the code any
// more, the engine doesn't wait either, and parts without room are lost. Its methods may be called
// from many goroutines at once; a nil Feed discards everything.
type Feed struct {
	each func(Part)
	done chan struct{} // closed when each is called no more

	mu       sync.Mutex
	changed  *sync.Cond
	queue    []Part
	size     int
	shown    int
	released bool
	closed   bool
	gone     bool // nobody reads
	texts    [2]text
}

// NewFeed returns a Feed that calls each for one part after the other. The end of ctx releases it;
// Close ends it.
func NewFeed(ctx context.Context, each func(Part)) *Feed {
	f := &Feed{each: each, done: make(chan struct{})}
	f.changed = sync.NewCond(&f.mu)
	f.texts[0].part = func(s string) Part { return Part{Stdout: s} }
	f.texts[1].part = func(s string) Part { return Part{Stderr: s} }
	stop := context.AfterFunc(ctx, f.Release)
	go func() {
		defer close(f.done)
		defer stop()
		f.deliver()
	}()
	return f
}

func (f *Feed) deliver() {
	for {
		p, ok := f.next()
		if !ok {
			return
		}
		f.each(p)
	}
}

// next waits for a part. ok is false at the end.
func (f *Feed) next() (p Part, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.queue) == 0 && !f.closed && !f.gone {
		f.changed.Wait()
	}
	if len(f.queue) == 0 || f.gone {
		return p, false
	}
	p, f.queue = f.queue[0], f.queue[1:]
	f.size -= p.size()
	f.changed.Broadcast()
	return p, true
}

// Put passes a part on once there is room for it.
func (f *Feed) Put(p Part) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Shown != nil {
		if f.shown++; f.shown > maxShown {
			return
		}
	}
	f.put(p)
}

// put is like Put with f.mu held.
func (f *Feed) put(p Part) {
	size := p.size()
	full := func() bool { return f.size > 0 && f.size+size > maxQueued }
	for full() && !f.released && !f.closed {
		f.changed.Wait()
	}
	if full() || f.closed || f.gone {
		return
	}
	f.queue, f.size = append(f.queue, p), f.size+size
	f.changed.Broadcast()
}

// Release makes writers stop waiting, because the code is being stopped.
func (f *Feed) Release() {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.released = true
	f.changed.Broadcast()
}

// ReleaseAfter releases the feed when ctx ends, and after the timeout, until stop.
func (f *Feed) ReleaseAfter(ctx context.Context, timeout time.Duration) (stop func()) {
	if f == nil {
		return func() {}
	}
	ended, late := context.AfterFunc(ctx, f.Release), time.AfterFunc(timeout, f.Release)
	return func() { ended(); late.Stop() }
}

// finish passes on the parts of a Response that the engine has not passed on yet.
func (f *Feed) finish(resp Response) {
	if f == nil {
		return
	}
	if !resp.Fed {
		for _, o := range ObjectsOf(resp) {
			f.Put(Part{Shown: o})
		}
	}
	raised := resp.Raised
	if raised == nil && resp.Status == StatusException {
		raised = lastRaised(resp.Stderr)
	}
	if raised != nil {
		f.Put(Part{Raised: raised})
	}
}

// lastRaised returns the exception at the end of a traceback.
func lastRaised(traceback string) *Raised {
	line := strings.TrimRight(traceback, "\n")
	line = line[strings.LastIndexByte(line, '\n')+1:]
	name, value, _ := strings.Cut(line, ": ")
	return &Raised{Name: name, Value: value, Traceback: traceback}
}

// leave reports whether nobody reads any more.
func (f *Feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone, f.queue, f.size = true, nil, 0
	f.changed.Broadcast()
}

// closeWait is how long a reader has for the rest after its context has ended: it may have
// interrupted the code, or be gone.
var closeWait = patience.For(time.Second)

// Close passes on the rest and returns when the reader has it. If ctx has ended, it doesn't wait
// for a reader that reads nothing.
func (f *Feed) Close(ctx context.Context) {
	f.mu.Lock()
	for i := range f.texts {
		if rest := f.texts[i].rest; len(rest) > 0 {
			f.put(f.texts[i].part(strings.ToValidUTF8(string(rest), "\uFFFD")))
		}
	}
	f.closed = true
	f.changed.Broadcast()
	f.mu.Unlock()
	select {
	case <-f.done:
		return
	case <-ctx.Done():
	}
	late := time.NewTimer(closeWait)
	defer late.Stop()
	select {
	case <-f.done:
	case <-late.C:
		f.leave()
	}
}

// Stdout and Stderr are writers of the two streams, for one goroutine each.
func (f *Feed) Stdout() io.Writer { return feedWriter{f, 0} }

// Stderr see Stdout.
func (f *Feed) Stderr() io.Writer { return feedWriter{f, 1} }

// text is a stream that is cut between characters.
type text struct {
	part func(string) Part
	rest []byte // of a character that has not come whole
}

func (t *text) take(p []byte) string {
	p = slices.Concat(t.rest, p)
	whole := len(p)
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if at := len(p) - back; utf8.RuneStart(p[at]) {
			if !utf8.FullRune(p[at:]) {
				whole = at
			}
			break
		}
	}
	t.rest = bytes.Clone(p[whole:])
	return strings.ToValidUTF8(string(p[:whole]), "\uFFFD")
}

type feedWriter struct {
	f      *Feed
	stream int
}

// Write implements io.Writer; it never fails.
func (w feedWriter) Write(p []byte) (int, error) {
	if w.f == nil {
		return len(p), nil
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if s := w.f.texts[w.stream].take(p); s != "" {
		w.f.put(w.f.texts[w.stream].part(s))
	}
	return len(p), nil
}
