package wisbox

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
)

// Prune removes what has no live owner: sessions as [overlay.Store.Sweep] says,
// with their containers, containers of this state root whose session is gone, and
// templates that were half made or removed. With dryRun it only reports them. It runs by itself, in part, when a Manager opens its
// first session and starts its first container.
func (m *Manager) Prune(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	swept, err := m.here.store.Sweep(ctx, &overlay.SweepOptions{DryRun: dryRun, Before: m.here.removeSandbox})
	if err != nil {
		return swept, err
	}
	for _, name := range m.PruneTemplates(ctx, dryRun) {
		swept = append(swept, overlay.Swept{ID: name, Reason: "a template that was half made or removed"})
	}
	orphans, err := m.here.pruneSandboxes(ctx, dryRun)
	return append(swept, orphans...), err
}

// PruneTemplates is what [Manager.Prune] does to templates that were half made or removed
// when their process ended; it returns what that was. Images that were built for templates
// go, too, where nothing uses them any more.
func (m *Manager) PruneTemplates(ctx context.Context, dryRun bool) []string {
	if !dryRun {
		m.pruneImages(ctx, time.Now().Add(-buildAge))
	}
	return m.here.templates().Sweep(ctx, dryRun)
}

// sweep clears the state root of what dead processes left. A new session
// doesn't fail because an old one can't be removed.
func (h *here) sweep(ctx context.Context) {
	swept, err := h.store.Sweep(ctx, &overlay.SweepOptions{Before: h.removeSandbox})
	h.logSwept(swept, err)
	h.templates().Sweep(ctx, false)
}

// sweepEvery is how often a long-lived manager looks for what has died meanwhile.
const sweepEvery = time.Minute

// keepSwept sweeps until the manager closes.
func (h *here) keepSwept() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			h.sweep(h.ctx)
		case <-h.ctx.Done():
			return
		}
	}
}

// sweepSandboxes removes orphaned containers once, beside the first container's
// making: nobody waits for it but Close.
func (h *here) sweepSandboxes() {
	h.sweepSandOnce.Do(func() {
		h.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(h.ctx, sweepTime)
			defer cancel()
			h.logSwept(h.pruneSandboxes(ctx, false))
		})
	})
}

// sweepTime bounds a sweep of containers in the background.
const sweepTime = time.Minute

// pruneSandboxes removes containers of this state root whose session is gone.
// The containers are listed first: a session that is made meanwhile is safe.
func (h *here) pruneSandboxes(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	boxes, err := h.backend.List(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	entries, err := h.store.List(ctx)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(entries))
	for _, e := range entries {
		known[e.ID] = true
	}
	var swept []overlay.Swept
	for _, box := range boxes {
		if known[box.ID] {
			continue
		}
		s := overlay.Swept{ID: box.ID, Reason: "a container whose session is gone"}
		if !dryRun {
			if err := h.backend.Remove(ctx, box.ID); err != nil {
				s.Problem = toolerr.Of(err).Error()
			}
		}
		swept = append(swept, s)
	}
	return swept, nil
}

func (h *here) logSwept(swept []overlay.Swept, err error) {
	if err != nil {
		h.log.Info("sweep", "error", err)
	}
	for _, s := range swept {
		h.log.Info("swept", "session", s.ID, "reason", s.Reason, "problem", s.Problem)
	}
}
