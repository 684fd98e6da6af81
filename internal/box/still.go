package box

import (
	"sync"
	"time"
)

// stillLook is how often a guard whose time is over looks whether programs go on.
const stillLook = 100 * time.Millisecond

// stillness counts how long programs have stood still: their time limits don't run then.
type stillness struct {
	mu    sync.Mutex
	since time.Time // zero while they run
	times int       // that it was begun and not ended
	total time.Duration
}

func (s *stillness) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times++; s.times == 1 {
		s.since = time.Now()
	}
}

// end is for each begin once; what is more does nothing.
func (s *stillness) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == 0 {
		return
	}
	if s.times--; s.times == 0 {
		s.total += time.Since(s.since)
		s.since = time.Time{}
	}
}

// lasted is how long in all.
func (s *stillness) lasted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == 0 {
		return s.total
	}
	return s.total + time.Since(s.since)
}
