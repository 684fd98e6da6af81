package resident

import (
	"context"
	"time"
)

// wait is between two looks: short at first, for most agents are ready at once.
type wait struct{ pause time.Duration }

func newWait() *wait { return &wait{200 * time.Microsecond} }

// next waits, and returns false when ctx has ended.
func (w *wait) next(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(w.pause):
	}
	w.pause = min(2*w.pause, 10*time.Millisecond)
	return true
}
