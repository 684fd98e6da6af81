// Package lock has a mutex whose Lock takes a context, for critical sections that may take long.
// For a few fields, use sync.Mutex.
package lock

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Mutex is a mutex that callers get in the order of their calls.
type Mutex struct{ one *semaphore.Weighted }

// New returns an unlocked Mutex.
func New() *Mutex { return &Mutex{semaphore.NewWeighted(1)} }

// Lock locks the mutex, or returns ctx's error without locking it.
func (m *Mutex) Lock(ctx context.Context) error { return m.one.Acquire(ctx, 1) }

// Unlock unlocks the mutex. It panics if the mutex isn't locked.
func (m *Mutex) Unlock() { m.one.Release(1) }

// Held reports whether the mutex is locked or waited for.
func (m *Mutex) Held() bool {
	if m.one.TryAcquire(1) {
		m.Unlock()
		return false
	}
	return true
}
