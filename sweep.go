package wisbox

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/internal/toolerr"
	"github.com/wisbox/wisbox/overlay"
)

// Prune removes what has no live owner: sessions as [overlay.Store.Sweep] says,
// with their containers, and containers of this state root whose session is
// gone. dryRun only tells. It runs by itself, in part, when a Manager opens its
// first session and starts its first container.
func (m *Manager) Prune(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	swept, err := m.store.Sweep(ctx, &overlay.SweepOptions{DryRun: dryRun, Before: m.removeSandbox})
	if err != nil {
		return swept, err
	}
	orphans, err := m.pruneSandboxes(ctx, dryRun)
	return append(swept, orphans...), err
}

// sweep clears the state root of what dead processes left. A new session
// doesn't fail because an old one can't be removed.
func (m *Manager) sweep(ctx context.Context) {
	swept, err := m.store.Sweep(ctx, &overlay.SweepOptions{Before: m.removeSandbox})
	m.logSwept(swept, err)
}

// sweepEvery is how often a long-lived manager looks for what has died meanwhile.
const sweepEvery = time.Minute

// keepSwept sweeps until the manager closes.
func (m *Manager) keepSwept() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.sweep(m.ctx)
		case <-m.ctx.Done():
			return
		}
	}
}

// sweepSandboxes removes orphaned containers once, beside the first container's
// making: nobody waits for it but Close.
func (m *Manager) sweepSandboxes() {
	m.sweepSandOnce.Do(func() {
		m.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(m.ctx, sweepTime)
			defer cancel()
			m.logSwept(m.pruneSandboxes(ctx, false))
		})
	})
}

// sweepTime bounds a sweep of containers in the background.
const sweepTime = time.Minute

// pruneSandboxes removes containers of this state root whose session is gone.
// The containers are listed first: a session that is made meanwhile is safe.
func (m *Manager) pruneSandboxes(ctx context.Context, dryRun bool) ([]overlay.Swept, error) {
	boxes, err := m.backend.List(ctx)
	if err != nil {
		return nil, toolerr.Of(err)
	}
	entries, err := m.store.List(ctx)
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
			if err := m.backend.Remove(ctx, box.ID); err != nil {
				s.Problem = toolerr.Of(err).Error()
			}
		}
		swept = append(swept, s)
	}
	return swept, nil
}

func (m *Manager) logSwept(swept []overlay.Swept, err error) {
	if err != nil {
		m.log.Info("sweep", "error", err)
	}
	for _, s := range swept {
		m.log.Info("swept", "session", s.ID, "reason", s.Reason, "problem", s.Problem)
	}
}
