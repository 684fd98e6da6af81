package podman

import (
	"context"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// filesStarter starts the agent's files mode over the connection that there is.
type filesStarter struct{ s *Sandbox }

func (f filesStarter) StartAgent(ctx context.Context, cmd sandbox.Cmd) (process sandbox.Process, err error) {
	if err := f.s.checkPin(); err != nil {
		return nil, err
	}
	err = f.s.agent.With(ctx, func(conn *agent.Conn) error {
		process, err = conn.StartAgent(ctx, cmd)
		return err
	})
	return process, err
}
