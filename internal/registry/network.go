package registry

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// Timeouts of changing the network rules and of reading them.
var (
	networkTime = patience.For(30 * time.Second)
	askTime     = patience.For(5 * time.Second)
)

// SetNetwork replaces the network rules; edit changes a copy of the record's. A client that
// disconnects doesn't interrupt the change. After an error the record has the sandbox's actual
// rules, or marks them as unknown if the sandbox can't be asked. A paused sandbox is a conflict.
func (s *Sandbox) SetNetwork(ctx context.Context, edit func(*Rules)) error {
	if err := s.change.Lock(ctx); err != nil {
		return err
	}
	defer s.change.Unlock()
	rec := s.Record()
	if rec.State == Paused {
		return tool.Errorf(tool.Conflict, "the sandbox is paused; resume it first")
	}
	next := rec.Rules
	edit(&next)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), networkTime)
	defer cancel()
	defer context.AfterFunc(s.r.ctx, cancel)()
	n, err := s.networker(ctx)
	if err != nil {
		return err
	}
	if err := s.keep(func(r *Record) { r.Wanted = &next }); err != nil { // first, because this process may be killed
		return err
	}
	if err := n.SetNetwork(ctx, next.Allow, next.Deny); err != nil {
		if asked := s.learn(context.WithoutCancel(ctx)); asked != nil {
			s.r.opts.Log.Warn("ask for the rules of a sandbox's network", "sandbox", s.Alias(), "error", Quiet(asked))
		}
		return err
	}
	return s.keep(func(r *Record) { r.Rules, r.Wanted = next, nil })
}

// Known returns the record with the sandbox's actual rules. It asks the sandbox if a change was
// interrupted. If that fails, Wanted is set.
func (s *Sandbox) Known(ctx context.Context) Record {
	if s.Record().Wanted == nil {
		return s.Record()
	}
	lock, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if s.change.Lock(lock) != nil {
		return s.Record()
	}
	defer s.change.Unlock()
	if err := s.learn(ctx); err != nil {
		s.r.opts.Log.Warn("ask for the rules of a sandbox's network", "sandbox", s.Alias(), "error", Quiet(err))
	}
	return s.Record()
}

// learn asks the sandbox for its rules if they aren't known. The caller must hold change.
func (s *Sandbox) learn(ctx context.Context) error {
	if s.Record().Wanted == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	n, err := s.networker(ctx)
	if err != nil {
		return err
	}
	allow, deny, err := n.Network(ctx)
	if err != nil {
		return err
	}
	return s.keep(func(r *Record) {
		switch {
		case r.Wanted.are(allow, deny):
			r.Rules = *r.Wanted
		case !r.are(allow, deny):
			r.Rules = Rules{Internet: len(allow) > 0, Allow: allow, Deny: deny}
		}
		r.Wanted = nil
	})
}

// networker returns the box as a Networker. The caller must hold change.
func (s *Sandbox) networker(ctx context.Context) (Networker, error) {
	box, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := box.(Networker)
	if !ok {
		return nil, tool.Errorf(tool.Unsupported, "this server can't change the network of a running sandbox; create one with the network that it needs")
	}
	return n, nil
}
