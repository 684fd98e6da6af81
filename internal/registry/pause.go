package registry

import (
	"context"
	"errors"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// Pause suspends the programs, or ends them with filesOnly. A paused sandbox is a conflict.
func (s *Sandbox) Pause(ctx context.Context, filesOnly bool) error {
	return s.turn(ctx, Running, func(b Box) error {
		if filesOnly {
			return s.halt(ctx, b)
		}
		p, ok := b.(Pauser)
		if !ok {
			return errNoPause
		}
		if err := p.Pause(ctx); err != nil {
			return err
		}
		return s.paused(false)
	})
}

// paused records a pause, and cuts off the requests of the current life.
func (s *Sandbox) paused(filesOnly bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == ending {
		return errGone
	}
	s.rec.State, s.rec.FilesOnly, s.rec.Halting = Paused, filesOnly, filesOnly
	s.over()
	return s.r.save(s.rec)
}

// haltTime bounds the end of all programs. A client that disconnects doesn't interrupt it.
var haltTime = patience.For(60 * time.Second)

// halt records the pause before it ends the programs: clients don't mistake that for a normal
// exit, and can't start other programs meanwhile.
func (s *Sandbox) halt(ctx context.Context, b Box) error {
	h, ok := b.(Restarter)
	if !ok {
		return errKeepsPrograms
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), haltTime)
	defer cancel()
	err := s.paused(true)
	if err == nil {
		err = s.empty(ctx, h)
	}
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.State == Paused {
		s.rec.State, s.rec.FilesOnly, s.rec.Halting = Running, false, false
		s.armIn(max(time.Until(s.rec.End), retryAfter))
		err = errors.Join(err, s.r.save(s.rec))
	}
	return err
}

// empty ends the programs of a sandbox whose record is marked Halting.
func (s *Sandbox) empty(ctx context.Context, h Restarter) error {
	if err := h.Halt(ctx); err != nil {
		return err
	}
	if err := s.keep(func(r *Record) { r.Halting = false }); err != nil && !errors.Is(err, errGone) {
		s.r.opts.Log.Warn("note that a sandbox has no programs", "sandbox", s.Alias(), "error", Quiet(err))
	}
	return nil
}

// emptyAgain ends the programs of a sandbox that a previous server was halting or restarting
// when it ended.
func (s *Sandbox) emptyAgain() {
	for s.r.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.r.ctx, haltTime)
		err := s.turn(ctx, Paused, func(b Box) error {
			h, ok := b.(Restarter)
			if !ok || !s.Record().Halting {
				return nil
			}
			return s.empty(ctx, h)
		})
		cancel()
		if kind := tool.KindOf(err); err == nil || kind == tool.Conflict || kind == tool.NotFound {
			return
		}
		s.r.opts.Log.Warn("a sandbox's programs can't be ended now; it is tried again", "sandbox", s.Alias(), "error", Quiet(err))
		select {
		case <-time.After(retryAfter):
		case <-s.r.ctx.Done():
		}
	}
}

// Resume resumes a sandbox for the duration life. With filesOnly, or if the pause kept no
// programs, the sandbox restarts from its files. A running sandbox is a conflict.
func (s *Sandbox) Resume(ctx context.Context, life time.Duration, filesOnly bool) error {
	err := s.turn(ctx, Paused, func(b Box) error {
		rec := s.Record()
		if err := s.resume(ctx, b, filesOnly || rec.FilesOnly, rec.Env); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.rec.State == ending {
			return errGone
		}
		s.rec.State, s.rec.FilesOnly, s.rec.Halting, s.rec.Started = Running, false, false, now()
		s.rec.End = s.rec.Started.Add(life)
		return s.r.save(s.rec)
	})
	s.arm()
	return err
}

func (s *Sandbox) resume(ctx context.Context, b Box, filesOnly bool, env map[string]string) error {
	if filesOnly {
		return s.restart(ctx, b, env)
	}
	p, ok := b.(Pauser)
	if !ok {
		return errNoPause
	}
	return p.Resume(ctx)
}

// restartTime bounds the start from files. A client that disconnects doesn't interrupt it.
var restartTime = patience.For(2 * time.Minute)

// restart starts a sandbox from its files. After a failure no programs run, because a paused
// sandbox has no deadline.
func (s *Sandbox) restart(ctx context.Context, b Box, env map[string]string) error {
	h, ok := b.(Restarter)
	if !ok {
		return errKeepsPrograms
	}
	whole := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(whole, restartTime)
	defer cancel()
	if err := s.keep(func(r *Record) { r.FilesOnly, r.Halting = true, true }); err != nil { // first, because this process may be killed
		return err
	}
	err := h.Restart(ctx, env)
	if err == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(whole, haltTime)
	defer cancel()
	if left := s.empty(ctx, h); left != nil {
		s.r.opts.Log.Warn("end what was begun of a sandbox that can't be resumed", "sandbox", s.Alias(), "error", Quiet(left))
	}
	return err
}

var (
	errNoPause       = tool.Errorf(tool.Unsupported, "this server can't pause sandboxes; let it run, or kill it")
	errKeepsPrograms = tool.Errorf(tool.Unsupported, "this server can't pause or resume a sandbox without its memory; leave memory out")
)

// turn calls do for a sandbox in the state from.
func (s *Sandbox) turn(ctx context.Context, from State, do func(Box) error) error {
	if err := s.change.Lock(ctx); err != nil {
		return err
	}
	defer s.change.Unlock()
	switch state := s.state(); {
	case state == ending:
		return errGone
	case state != from:
		return tool.Errorf(tool.Conflict, "the sandbox is %s already", state)
	}
	box, err := s.open(ctx)
	if err != nil {
		return err
	}
	return do(box)
}
