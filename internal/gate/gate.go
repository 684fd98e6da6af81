// Package gate admits the calls of a session, and stops and awaits them when the session is closed or
// while its workspace or sandbox is replaced.
package gate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// ErrClosed is the error of a call after Close.
var ErrClosed = errors.New("closed")

// Gate counts the calls of one handle. Its methods may be called from many
// goroutines at once.
type Gate struct {
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// New returns a Gate whose calls also end with ctx.
func New(ctx context.Context) *Gate {
	g := &Gate{}
	g.ctx, g.cancel = context.WithCancel(ctx)
	return g
}

// Enter begins a call; leave ends it. The call's context ends with ctx and with Close.
func (g *Gate) Enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, nil, ErrClosed
	}
	g.calls.Add(1)
	ctx, end := linked(ctx, g.ctx)
	return ctx, func() { end(); g.calls.Done() }, nil
}

// Close refuses new calls and cancels running ones, see Wait. It reports whether it was the first
// Close.
func (g *Gate) Close() (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	first = !g.closed
	g.closed = true
	g.cancel()
	return first
}

// Wait waits for the running calls of a closed Gate.
func (g *Gate) Wait() { g.calls.Wait() }

// Generation is the state that a session's calls work with, until it is replaced. Its methods may
// be called from many goroutines at once.
type Generation struct {
	mu   sync.RWMutex // held for reading by every call, and for writing by Replace
	life atomic.Pointer[life]
}

// life is the context that ends the calls.
type life struct {
	context.Context
	end context.CancelCauseFunc
}

func newLife(ctx context.Context) *life {
	l := &life{}
	l.Context, l.end = context.WithCancelCause(ctx)
	return l
}

// NewGeneration returns the first generation, which also ends with ctx.
func NewGeneration(ctx context.Context) *Generation {
	g := &Generation{}
	g.life.Store(newLife(ctx))
	return g
}

// Join holds the generation for one call, until leave.
func (g *Generation) Join(ctx context.Context) (_ context.Context, leave func()) {
	g.mu.RLock()
	ctx, end := linked(ctx, g.life.Load())
	return ctx, func() { end(); g.mu.RUnlock() }
}

// Replace cancels the running calls with cause, makes new ones wait, and calls renew. The next
// generation takes ctx's values, but doesn't end with ctx.
func (g *Generation) Replace(ctx context.Context, cause error, renew func() error) error {
	g.mu.RLock()
	g.life.Load().end(cause)
	g.mu.RUnlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life.Store(newLife(context.WithoutCancel(ctx)))
	return renew()
}

// End cancels the running calls with cause. It doesn't wait for them and doesn't affect later
// calls.
func (g *Generation) End(ctx context.Context, cause error) {
	g.life.Swap(newLife(context.WithoutCancel(ctx))).end(cause)
}

// linked returns ctx, which then also ends with other, with the same cause.
func linked(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { stop(); cancel(nil) }
}

// Set is a set that many goroutines share until it is closed.
type Set[T comparable] struct {
	mu     sync.Mutex
	items  map[T]struct{}
	added  int64
	closed bool
}

// Add adds a member unless the set is closed, and reports whether it did.
func (s *Set[T]) Add(item T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.items == nil {
		s.items = map[T]struct{}{}
	}
	s.items[item] = struct{}{}
	s.added++
	return true
}

// Remove removes a member.
func (s *Set[T]) Remove(item T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.items, item)
}

// Count returns the present number of members, and the number ever added.
func (s *Set[T]) Count() (now int, ever int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items), s.added
}

// Close closes the set and returns its members.
func (s *Set[T]) Close() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	out := make([]T, 0, len(s.items))
	for item := range s.items {
		out = append(out, item)
	}
	return out
}
