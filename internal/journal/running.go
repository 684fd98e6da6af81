package journal

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// OutcomeRunning is the Outcome of calls that run.
const OutcomeRunning = "running"

// Running are the calls that a process performs now.
type Running struct {
	mu  sync.Mutex
	now map[string]Event // by call
}

// Add notes a call until leave.
func (r *Running) Add(e Event) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Time, e.Outcome = time.Now(), OutcomeRunning
	if r.now == nil {
		r.now = map[string]Event{}
	}
	r.now[e.Call] = e
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.now, e.Call)
	}
}

// List returns the calls in the order of their starts.
func (r *Running) List() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Event, 0, len(r.now))
	for _, e := range r.now {
		e.Duration = time.Since(e.Time)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Event) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Call, b.Call)) })
	return all
}
