package podman

import (
	"context"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

var (
	_ sandbox.Detacher  = (*Sandbox)(nil)
	_ sandbox.SoleOwner = (*Sandbox)(nil)
)

// Detached implements [sandbox.Detacher].
func (s *Sandbox) Detached(ctx context.Context) (found []sandbox.DetachedProcess, err error) {
	err = s.agent.With(ctx, func(conn *agent.Conn) error {
		found, err = conn.Detached(ctx)
		return err
	})
	return found, err
}

// Attach implements [sandbox.Detacher].
func (s *Sandbox) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (p sandbox.Process, err error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Attach(ctx, id, cmd)
}

// EndOthers implements [sandbox.SoleOwner]. Without a relay, the kernel has already ended the
// connections of processes that are gone. A relay may stay, since Podman's conmon doesn't close its
// stdin if it was just writing to a client that was killed.
func (s *Sandbox) EndOthers(ctx context.Context) error {
	if !s.isFar(ctx) {
		return nil
	}
	return s.agent.With(ctx, func(conn *agent.Conn) error { return conn.EndOthers(ctx) })
}
