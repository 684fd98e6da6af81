package interp

import (
	"io"
	"sync"
)

// output splits the endless stream of a process into calls. Output between two calls, for instance
// from a thread, belongs to the next call.
type output[S io.Writer] struct {
	fresh func() S

	mu  sync.Mutex
	now S
}

func newOutput[S io.Writer](fresh func() S) *output[S] {
	return &output[S]{fresh: fresh, now: fresh()}
}

// Write implements io.Writer.
func (o *output[S]) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now.Write(p)
}

// take ends the call: it returns the call's output and starts the next one's.
func (o *output[S]) take() S {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.now
	o.now = o.fresh()
	return taken
}
