package wisbox

import (
	"context"
	"strconv"
	"sync"

	"github.com/docker/go-units"

	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/sandbox"
)

// growing are the tools by which the host side writes into a workspace. They
// ask for room as programs do; rm must not.
var growing = map[string]bool{"write_file": true, "edit_file": true, "snapshot_create": true, "snapshot_restore": true}

// diskWatch ends the programs of a session that is at its disk's limit. It begins
// with the first program.
type diskWatch struct {
	dir *overlay.Dir
	box *box

	mu   sync.Mutex
	stop func() // nil before the first program
}

func (w *diskWatch) begin() {
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
		w.dir.WatchDisk(ctx, func() { w.endPrograms(ctx) })
	}()
}

func (w *diskWatch) endPrograms(ctx context.Context) {
	sb, err := w.box.peek(ctx)
	if err != nil {
		return
	}
	if ender, ok := sb.(sandbox.Ender); ok {
		_ = ender.EndAll(ctx, sandbox.StatusDiskLimit) // it is asked for again at the next look
	}
}

func (w *diskWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
	w.stop = func() {}
}

// diskLimits tells what keeps the limits of a session's files.
func diskLimits(dir *overlay.Dir) []sandbox.LimitState {
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

// withDisk puts what the session's directory knows in the place of what the
// backend can't know.
func withDisk(limits, disk []sandbox.LimitState) []sandbox.LimitState {
	for i := range limits {
		for _, d := range disk {
			if limits[i].Name == d.Name {
				limits[i] = d
			}
		}
	}
	return limits
}
