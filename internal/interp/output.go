package interp

import (
	"io"
	"sync"
)

// output cuts the endless stream of a process into calls. What comes between two
// calls, from a thread for instance, belongs to the next one.
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

// take ends the call: its output is the caller's, and the next output the next
// call's.
func (o *output[S]) take() S {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken := o.now
	o.now = o.fresh()
	return taken
}
