package registry

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/tool"
)

// Create creates a sandbox for its owner within the quota. It fills in State, ID and Started,
// and sets End to life from now.
func (r *Registry) Create(ctx context.Context, rec Record, life time.Duration, quota Quota) (*Sandbox, error) {
	return r.create(ctx, rec, life, quota, nil)
}

// create creates a sandbox with begin. If begin is nil, it takes a ready sandbox or calls the
// engine.
func (r *Registry) create(ctx context.Context, rec Record, life time.Duration, quota Quota, begin func(context.Context, Record) (Box, error)) (*Sandbox, error) {
	rec = rec.clone()
	rec.ID, rec.State, rec.Started = newID(), creating, now()
	rec.End = rec.Started.Add(r.bounded(life))
	s := r.newSandbox(rec)
	s.mine = true
	if err := r.claim(ctx, s, quota); err != nil {
		return nil, err
	}
	var box Box
	var err error
	if begin == nil {
		begin = r.opts.Engine.Create
		s, box = r.take(ctx, s)
	}
	if box == nil {
		if err = r.save(rec); err == nil {
			stop := s.renewing()
			box, err = begin(ctx, rec)
			stop()
		}
	}
	if err == nil {
		err = s.begun(ctx, box, life, quota)
	}
	if err != nil {
		r.remove(s)
		return nil, err
	}
	s.arm()
	return s, nil
}

// begun makes a created sandbox visible.
func (s *Sandbox) begun(ctx context.Context, box Box, life time.Duration, quota Quota) error {
	s.mu.Lock()
	s.box = box
	s.mu.Unlock()
	if err := s.r.admit(ctx, s, quota); err != nil {
		return err
	}
	return s.keep(func(rec *Record) {
		rec.State, rec.Started = Running, now()
		rec.End = rec.Started.Add(s.r.bounded(life))
	})
}

// bounded returns life, bounded by MaxLife.
func (r *Registry) bounded(life time.Duration) time.Duration {
	if most := r.opts.MaxLife; most > 0 {
		return min(life, most)
	}
	return life
}

// claim reserves a place for a sandbox that is being made.
func (r *Registry) claim(ctx context.Context, s *Sandbox, quota Quota) error {
	a, done, err := r.account(ctx, s.owner)
	if err != nil {
		return err
	}
	defer done()
	_, kept, err := quota.kept()
	if err != nil {
		return err
	}
	left, err := r.left()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return tool.Errorf(tool.Unavailable, "the server is being stopped")
	}
	if other := r.named(s.owner, s.rec.Name); other != nil {
		return errTaken(other.Record())
	}
	taken := r.taken(s.owner)
	taken.Disk += kept + a.disk
	if err := quota.check(taken, s.rec); err != nil {
		return err
	}
	if s.rec.allDisk() > left {
		return r.errFull()
	}
	r.all[s.id] = s
	return nil
}

// taken returns the sum of the limits of an owner's sandboxes. The caller must hold mu.
func (r *Registry) taken(owner string) (sum Quota) {
	for _, other := range r.all {
		if rec := other.Record(); other.owner == owner && rec.Counts() {
			sum.Add(rec)
		}
	}
	return sum
}

// Taken returns the sum of the limits of an owner's sandboxes, including those being made.
func (r *Registry) Taken(owner string) Quota {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken(owner)
}

// Fork creates a sandbox from the files of another, with its network rules as changed by edit.
// The other's rules don't change meanwhile.
func (r *Registry) Fork(ctx context.Context, from *Sandbox, life time.Duration, quota Quota, edit func(*Rules)) (*Sandbox, error) {
	if err := from.change.Lock(ctx); err != nil {
		return nil, err
	}
	defer from.change.Unlock()
	if err := from.learn(ctx); err != nil {
		return nil, err
	}
	rec := from.Record()
	edit(&rec.Rules)
	return r.create(ctx, rec, life, quota, func(ctx context.Context, rec Record) (Box, error) {
		box, err := from.open(ctx)
		if err != nil {
			return nil, err
		}
		forker, ok := box.(Forker)
		if !ok {
			return nil, tool.Errorf(tool.Unsupported, "this server can't fork sandboxes; create one, and write the files into it")
		}
		return forker.Fork(ctx, rec)
	})
}
