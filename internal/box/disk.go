package box

import (
	"context"
	"strconv"
	"sync"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
)

// DiskWatch ends the programs of a session that reaches its disk limit. It begins with the first
// program. Dir and Box are required.
type DiskWatch struct {
	Dir *overlay.Dir
	Box *Box

	mu   sync.Mutex
	stop func() // nil before the first program
}

// Begin starts to watch; a second Begin does nothing.
func (w *DiskWatch) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		w.Dir.WatchDisk(ctx, func() { w.endPrograms(ctx) })
	}()
}

func (w *DiskWatch) endPrograms(ctx context.Context) {
	if w.Box.opts.Awake() != nil {
		return // frozen programs write nothing and can't be ended
	}
	sb, err := w.Box.Peek(ctx)
	if err != nil {
		return
	}
	if ender, ok := sandbox.As[sandbox.Ender](sb); ok {
		_ = ender.EndAll(ctx, sandbox.StatusDiskLimit) // the next look tries again
	}
}

// End stops the watch for good.
func (w *DiskWatch) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	w.stop = func() {}
}

// DiskLimits returns the limits of a session's files, and how they are enforced.
func DiskLimits(dir *overlay.Dir) []sandbox.LimitState {
	var out []sandbox.LimitState
	for _, l := range dir.DiskState() {
		asked := strconv.FormatInt(l.Asked, 10)
		if l.Name == "disk" {
			asked = units.BytesSize(float64(l.Asked))
		}
		out = append(out, sandbox.LimitState{Name: l.Name, Asked: asked, Enforced: l.Enforced, By: l.By})
	}
	return out
}

// WithDisk replaces the limits that the backend can't know by those of the session's directory.
func WithDisk(limits, disk []sandbox.LimitState) []sandbox.LimitState {
	for i := range limits {
		for _, d := range disk {
			if limits[i].Name == d.Name {
				limits[i] = d
			}
		}
	}
	return limits
}
