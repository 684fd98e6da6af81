package podman

import (
	"context"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Ender = (*Sandbox)(nil)

// EndAll ends every program that this handle runs, with the status given: for a
// limit that is watched from outside. It starts no agent and doesn't wait for the
// programs to end. Where the image has no Python they are killed all the same,
// but their Result says signaled.
func (s *Sandbox) EndAll(ctx context.Context, status sandbox.Status) error {
	s.mu.Lock()
	d, plain := s.agent, s.plain
	s.mu.Unlock()
	if plain != nil && len(plain.turn) > 0 {
		plain.clean(ctx)
	}
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		if d.err == nil {
			d.conn.EndAll(status)
		}
	default: // no program runs yet
	}
	return nil
}
