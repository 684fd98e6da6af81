package sharing

import (
	"errors"
	"io"
	"sync"
)

// ErrClosed is the error of a [Lazy] that was closed before its first use.
var ErrClosed = errors.New("closed before its first use")

// Lazy makes a value at its first use. Its methods may be called concurrently.
type Lazy[V io.Closer] struct {
	// New makes the value. It is called at most once.
	New func() (V, error)

	mu    sync.Mutex
	made  bool
	value V
	err   error
}

// Get returns the value, or the error of New, or [ErrClosed].
func (l *Lazy[V]) Get() (V, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.made {
		l.made = true
		l.value, l.err = l.New()
	}
	return l.value, l.err
}

// Close closes the value if it was made, and keeps it from being made.
func (l *Lazy[V]) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made && l.err == nil {
		return l.value.Close()
	}
	l.made, l.err = true, ErrClosed
	return nil
}
