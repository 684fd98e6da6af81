// Package kept keeps values between evaluations, such as interpreters or their memory. Each slot has a
// value and runs one evaluation at a time; the end of a slot waits for the running one. The engine
// decides what the values are.
package kept

import (
	"context"
	"maps"
	"sync"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/tool"
)

// Max is the maximum number of slots of a Table.
const Max = 8

// Table has the slots of one engine. K identifies a slot, V is its value; before the first
// evaluation, that is the zero value. It may be used from many goroutines at once.
type Table[K comparable, V any] struct {
	end func(*V)

	mu    sync.Mutex
	slots map[K]*slot[V]
}

// slot is one value and its lifetime.
type slot[V any] struct {
	life   context.Context // ends with the table's Close
	cancel context.CancelFunc

	mu    *lock.Mutex // held during an evaluation or an end; guards the fields below
	value V
	gone  bool // no longer in the table: take another slot
}

// New returns a table without slots. end ends a value, even a zero one.
func New[K comparable, V any](end func(*V)) *Table[K, V] {
	return &Table[K, V]{end: end, slots: map[K]*slot[V]{}}
}

// Do runs one evaluation on the value of a slot, after earlier ones have ended, and creates the
// slot if there is none. The evaluation's context also ends with Close. The error is evaluate's, or
// a *tool.Error if it didn't run.
func (t *Table[K, V]) Do(ctx context.Context, key K, evaluate func(context.Context, *V) error) error {
	for {
		s, err := t.slot(key)
		if err != nil {
			return err
		}
		if done, err := s.do(ctx, evaluate); done {
			return err
		}
	}
}

func (t *Table[K, V]) slot(key K) (*slot[V], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.slots[key]; s != nil {
		return s, nil
	}
	if len(t.slots) >= Max {
		return nil, tool.Errorf(tool.Limit, "there are already %d kept interpreters, the maximum; reset one", Max).In("context")
	}
	s := &slot[V]{mu: lock.New()}
	s.life, s.cancel = context.WithCancel(context.Background())
	t.slots[key] = s
	return s, nil
}

// do reports done=false if the slot is gone.
func (s *slot[V]) do(ctx context.Context, evaluate func(context.Context, *V) error) (done bool, err error) {
	if err := s.mu.Lock(ctx); err != nil {
		return true, tool.AsError(err)
	}
	defer s.mu.Unlock()
	if s.gone {
		return false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	return true, evaluate(ctx, &s.value)
}

// Reset ends the values of the slots that match, each after its running evaluation.
func (t *Table[K, V]) Reset(ctx context.Context, match func(K) bool) error {
	for key, s := range t.all() {
		if !match(key) {
			continue
		}
		if err := t.forget(ctx, key, s); err != nil {
			return err
		}
	}
	return nil
}

// Cancel cancels the running evaluations of the slots that match. Until the Reset that must follow,
// these slots evaluate nothing.
func (t *Table[K, V]) Cancel(match func(K) bool) {
	for key, s := range t.all() {
		if match(key) {
			s.cancel()
		}
	}
}

// Close cancels running evaluations and ends all values.
func (t *Table[K, V]) Close() error {
	all := t.all()
	for _, s := range all {
		s.cancel()
	}
	for key, s := range all {
		if err := t.forget(context.Background(), key, s); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table[K, V]) forget(ctx context.Context, key K, s *slot[V]) error {
	if err := s.mu.Lock(ctx); err != nil {
		return tool.AsError(err)
	}
	defer s.mu.Unlock()
	if s.gone {
		return nil
	}
	s.gone = true
	s.cancel()
	t.end(&s.value)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.slots, key)
	return nil
}

// Busy reports whether an evaluation is running.
func (t *Table[K, V]) Busy() bool {
	for _, s := range t.all() {
		if s.mu.Held() {
			return true
		}
	}
	return false
}

func (t *Table[K, V]) all() map[K]*slot[V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.slots)
}
