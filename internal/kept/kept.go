// Package kept holds what lives on between evaluations, such as an interpreter or its
// memory: a value in each slot, one evaluation at a time in a slot, and an end that
// waits for the evaluation that runs. What the values are is their engine's matter.
package kept

import (
	"context"
	"maps"
	"sync"

	"github.com/wisbox/wisbox/internal/lock"
	"github.com/wisbox/wisbox/tool"
)

// Max is how many slots a Table has at a time.
const Max = 8

// Table has the slots of one engine. K names a slot, V is its value: the zero one
// before the first evaluation. It may be used from many goroutines at once.
type Table[K comparable, V any] struct {
	end func(*V)

	mu    sync.Mutex
	slots map[K]*slot[V]
}

// slot is one value and its life.
type slot[V any] struct {
	life   context.Context // ends with the table's Close
	cancel context.CancelFunc

	mu    *lock.Mutex // held while an evaluation or an end runs; guards what follows
	value V
	gone  bool // the table has forgotten it: take another slot
}

// New makes a table without slots. end ends a value, also a zero one.
func New[K comparable, V any](end func(*V)) *Table[K, V] {
	return &Table[K, V]{end: end, slots: map[K]*slot[V]{}}
}

// Do runs one evaluation on the value of a slot, which it makes where there is none,
// when the evaluations before it have ended. Its context ends also with Close. The
// error is evaluate's, or a *tool.Error where it did not run.
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
		return nil, tool.Errorf(tool.Limit, "there are %d kept interpreters, which is the limit; reset one", Max).In("context")
	}
	s := &slot[V]{mu: lock.New()}
	s.life, s.cancel = context.WithCancel(context.Background())
	t.slots[key] = s
	return s, nil
}

// do is not done where the slot is gone.
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

// Reset ends the values of the slots that match picks, each when the evaluation that
// runs in it has ended.
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

// Cancel cancels the evaluations that run in the slots that match picks. A Reset follows,
// until which such a slot evaluates nothing.
func (t *Table[K, V]) Cancel(match func(K) bool) {
	for key, s := range t.all() {
		if match(key) {
			s.cancel()
		}
	}
}

// Close ends every value. Evaluations that run are cancelled.
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

// Busy reports whether an evaluation runs.
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
