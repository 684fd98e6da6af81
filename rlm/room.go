package rlm

import (
	"sync"

	"github.com/wisbox/wisbox/tool"
)

// room is what all bindings of a session, or of all conversations of a run, may
// have together, in bytes.
type room struct {
	max int64

	mu   sync.Mutex
	used int64
}

func newRoom(max int64) *room {
	if max <= 0 {
		max = DefaultMaxTotal
	}
	return &room{max: max}
}

// take charges n bytes, or gives them back where n is negative.
func (r *room) take(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 && r.used+n > r.max {
		return tool.Errorf(tool.Limit, "the bindings would have %d bytes together; at most %d are taken: bind smaller texts over those that are not needed", r.used+n, r.max)
	}
	r.used += n
	return nil
}
