package conformance

import (
	"fmt"
	"regexp"
	"sync"
)

// told is what a call with a field progress tells until its answer. Nil is a call without
// one.
type told struct {
	wanted *regexp.Regexp

	mu     sync.Mutex
	found  bool
	latest string
}

func follower(s Step) *told {
	if s.Progress == "" {
		return nil
	}
	return &told{wanted: regexp.MustCompile(s.Progress)} // parseCase has compiled it
}

func (t *told) hear() func(message string) {
	if t == nil {
		return nil
	}
	return func(message string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.latest = message
		t.found = t.found || t.wanted.MatchString(message)
	}
}

func (t *told) judge() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.found {
		return fmt.Errorf("no progress matches %q; the last was %q", t.wanted, clip(t.latest, 200))
	}
	return nil
}
