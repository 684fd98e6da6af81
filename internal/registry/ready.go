package registry

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/pool"
	"github.com/wisbox/wisbox/tool"
)

// Ready configures a pool of sandboxes that are made in advance, so that clients don't wait for
// a start. They have no owner and don't count towards quotas. After a crash, the next server
// removes those left over.
type Ready struct {
	// Min is the number kept ready; 0 disables the pool. Max is the limit when sandboxes are
	// taken faster than they are made; default Min.
	Min, Max int
	// Fits reports whether a ready sandbox satisfies a client's request. Network rules don't
	// matter: they are set when a sandbox is taken.
	Fits func(Record) bool
}

// Readier is a [Box] that may release its resources while it isn't used.
type Readier interface {
	// Ready acquires the resources again.
	Ready(ctx context.Context) error
}

// warmEvery is the interval at which ready sandboxes are used, to keep them ready.
const warmEvery = 5 * time.Minute

const (
	takeTries = 3 // before a new sandbox is made instead
)

var (
	prepareTime = patience.For(2 * time.Minute)  // for making a sandbox
	readyTime   = patience.For(10 * time.Second) // for using a sandbox
)

func (r *Registry) keepReady() {
	if r.opts.Ready.Min <= 0 {
		return
	}
	r.ready = pool.New(r.ctx, &pool.Options[*Sandbox]{Min: r.opts.Ready.Min, Max: r.opts.Ready.Max, Make: r.prepare, Discard: r.discard, Log: r.opts.Log})
	r.tasks.Go(func() {
		tick := time.NewTicker(warmEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.warm()
			case <-r.ctx.Done():
				return
			}
		}
	})
}

// ReadyNow returns the number of ready sandboxes.
func (r *Registry) ReadyNow() int { return r.ready.Stats().Ready }

func (r *Registry) warm() {
	for _, s := range r.list() {
		s.mu.Lock()
		box := s.box
		s.mu.Unlock()
		if !s.spare || box == nil {
			continue
		}
		if err := ready(r.ctx, box); err != nil && r.ctx.Err() == nil {
			r.opts.Log.Warn("use a sandbox that is kept ready", "sandbox", s.Alias(), "error", Quiet(err))
			for _, out := range r.ready.Drop(func(one *Sandbox) bool { return one == s }) { // unless it was taken meanwhile
				r.remove(out)
			}
		}
	}
}

func ready(ctx context.Context, box Box) error {
	b, ok := box.(Readier)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	return b.Ready(ctx)
}

// prepare makes a sandbox without an owner.
func (r *Registry) prepare(ctx context.Context) (*Sandbox, error) {
	size := r.opts.Size
	s := r.newSandbox(Record{ID: newID(), State: creating, CPUs: size.CPUs, Memory: size.Memory, Disk: size.Disk, Beside: r.opts.Beside})
	s.spare = true
	r.mu.Lock()
	r.all[s.id] = s
	r.mu.Unlock()
	rec := s.Record()
	err := r.save(rec)
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	var box Box
	if err == nil {
		box, err = r.opts.Engine.Create(ctx, rec)
	}
	if err != nil {
		r.discard(s)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.box = box
	return s, nil
}

// discard removes a sandbox that wasn't taken. The next start retries after a failure.
func (r *Registry) discard(s *Sandbox) {
	if err := r.removeOnce(s); err != nil {
		r.opts.Log.Warn("remove a sandbox that was kept ready", "sandbox", s.Alias(), "error", Quiet(err))
	}
}

// take replaces s by a ready sandbox, if one fits. The result then has the ID of the ready
// sandbox; otherwise box is nil. Ready sandboxes that don't work are removed.
func (r *Registry) take(ctx context.Context, s *Sandbox) (taken *Sandbox, box Box) {
	rec := s.Record()
	if r.ready == nil || !r.opts.Ready.Fits(rec) {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*readyTime) // for all tries; making a sandbox takes longer
	defer cancel()
	for n := 0; n < takeTries && ctx.Err() == nil; n++ {
		spare, ok := r.ready.Take()
		if !ok {
			break
		}
		spare.mu.Lock()
		box := spare.box
		spare.mu.Unlock()
		if err := fit(ctx, box, rec); err == nil {
			return r.give(spare, s), box
		} else if ctx.Err() == nil {
			r.opts.Log.Warn("take a sandbox that is kept ready", "sandbox", spare.Alias(), "error", Quiet(err))
		}
		r.remove(spare)
	}
	return s, nil
}

// fit sets the record's network rules on a ready sandbox and checks that it works.
func fit(ctx context.Context, box Box, rec Record) error {
	if len(rec.Allow)+len(rec.Deny) > 0 {
		n, ok := box.(Networker)
		if !ok {
			return tool.Errorf(tool.Unsupported, "its network can't be changed")
		}
		if err := n.SetNetwork(ctx, rec.Allow, rec.Deny); err != nil {
			return err
		}
	}
	return ready(ctx, box)
}

// give replaces s by a ready sandbox.
func (r *Registry) give(spare, s *Sandbox) *Sandbox {
	spare.mu.Lock()
	spare.box = nil
	spare.mu.Unlock()
	rec := s.Record()
	rec.ID = spare.id
	taken := r.newSandbox(rec)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, s.id)
	r.all[taken.id] = taken
	return taken
}
