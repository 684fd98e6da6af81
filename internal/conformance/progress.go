package conformance

import (
	"fmt"
	"regexp"
	"sync"
)

// progress checks the reports before an answer against a step's field progress. It is nil for a
// step without the field.
type progress struct {
	wanted *regexp.Regexp

	mu     sync.Mutex
	found  bool
	latest string
}

func progressOf(s Step) *progress {
	if s.Progress == "" {
		return nil
	}
	return &progress{wanted: regexp.MustCompile(s.Progress)} // parseCase has compiled it
}

func (p *progress) hear() func(message string) {
	if p == nil {
		return nil
	}
	return func(message string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.latest = message
		p.found = p.found || p.wanted.MatchString(message)
	}
}

func (p *progress) judge() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.found {
		return fmt.Errorf("no progress matches %q; the last was %q", p.wanted, clip(p.latest, 200))
	}
	return nil
}
