package rlm

import (
	"sync"

	"github.com/wisbox/wisbox/tool"
)

// room bounds the total bytes of all bindings of a session, or of all conversations of a run.
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

// take charges n bytes; a negative n gives them back.
func (r *room) take(n int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 && r.used+n > r.max {
		return tool.Errorf(tool.Limit, "the bindings would have %d bytes in total; the maximum is %d: bind smaller texts to the names that are no longer needed", r.used+n, r.max)
	}
	r.used += n
	return nil
}
