package box

import (
	"sync"
	"time"
)

// stillLook is the interval at which a guard whose time is over checks whether programs go on.
const stillLook = 100 * time.Millisecond

// stillness counts how long programs were frozen, when their time limits don't run.
type stillness struct {
	mu    sync.Mutex
	since time.Time // zero while they run
	times int       // begun and not ended periods
	total time.Duration
}

func (s *stillness) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times++; s.times == 1 {
		s.since = time.Now()
	}
}

// end ends a period that begin began. An extra call does nothing.
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

// lasted returns the total time.
func (s *stillness) lasted() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == 0 {
		return s.total
	}
	return s.total + time.Since(s.since)
}
