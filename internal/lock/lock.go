// Package lock is a mutex that can be waited for with a context, for work that may
// take long. For a few fields take sync.Mutex.
package lock

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Mutex lets one caller at a time in, in the order in which they came.
type Mutex struct{ one *semaphore.Weighted }

// New makes a mutex that nobody holds.
func New() *Mutex { return &Mutex{semaphore.NewWeighted(1)} }

// Lock waits for the mutex, or returns ctx's error; then the mutex isn't held.
func (m *Mutex) Lock(ctx context.Context) error { return m.one.Acquire(ctx, 1) }

// Unlock gives the mutex to the next one. It panics where nobody holds it.
func (m *Mutex) Unlock() { m.one.Release(1) }

// Held reports whether somebody holds the mutex or waits for it.
func (m *Mutex) Held() bool {
	if m.one.TryAcquire(1) {
		m.Unlock()
		return false
	}
	return true
}
