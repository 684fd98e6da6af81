package podman

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

const (
	agentTimeout = 20 * time.Second // from nothing to the handshake
	goneTimeout  = time.Second      // for the processes of a lost agent to end
)

// dialing is one agent: on its way until done is closed, then conn or err.
type dialing struct {
	done chan struct{}
	conn *agent.Conn
	err  error
}

// usable tells whether callers should wait for it or use it.
func (d *dialing) usable() bool {
	select {
	case <-d.done:
		return d.err == nil && d.conn.Err() == nil
	default:
		return true
	}
}

// resident gives the agent of this handle. The first caller starts it, others
// wait for the same; a caller that gives up doesn't stop it.
func (s *Sandbox) resident(ctx context.Context) (*agent.Conn, error) {
	d := s.dialing()
	select {
	case <-d.done:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, fail(ctx.Err(), nil, "gave up waiting for the sandbox's agent")
	}
}

func (s *Sandbox) dialing() *dialing {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.agent
	if last != nil && last.usable() {
		return last
	}
	d := &dialing{done: make(chan struct{})}
	s.agent = d
	go func() {
		defer close(d.done)
		d.conn, d.err = s.startAgent(last)
		if d.err != nil && s.life.Err() != nil {
			d.err = errClosed(d.err)
		}
	}()
	return d
}

func (s *Sandbox) startAgent(last *dialing) (*agent.Conn, error) {
	ctx, cancel := context.WithTimeout(s.life, agentTimeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if last == nil {
		return s.dialAgain(ctx)
	}
	if err := s.revive(ctx, last); err != nil {
		return nil, err
	}
	conn, err := s.dialAgain(ctx)
	if err != nil {
		return nil, err
	}
	if err := putSecrets(ctx, conn, s.keptSecrets()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// dialTries is how often an agent is started before it counts as impossible: a
// service under load breaks an attach now and then.
const dialTries = 3

func (s *Sandbox) dialAgain(ctx context.Context) (conn *agent.Conn, err error) {
	for try := range dialTries {
		conn, err = s.dial(ctx, false)
		if err == nil || !brokeOff(err) || ctx.Err() != nil {
			return conn, err
		}
		pause(ctx, try+1)
	}
	return conn, err
}

func brokeOff(err error) bool {
	var ours *Error
	return errors.As(err, &ours) && errors.Is(ours.Kind, sandbox.ErrUnavailable) && isTransport(ours.Cause)
}

func errClosed(cause error) error {
	return fail(sandbox.ErrLost, cause, "this handle was closed; open the sandbox again")
}

// dial starts an agent in the container and shakes hands with it.
func (s *Sandbox) dial(ctx context.Context, once bool) (*agent.Conn, error) {
	if err := s.life.Err(); err != nil {
		return nil, errClosed(err)
	}
	stream, err := s.b.exec(ctx, s.name, execConfig{Cmd: agent.Command(), User: "0:0", WorkingDir: "/"})
	if lacksPython(err) {
		return nil, fail(sandbox.ErrUnsupported, err, "the image has no python3")
	}
	if err != nil {
		return nil, s.diagnose(ctx, err)
	}
	opts := &agent.Options{Once: once}
	if !once {
		opts.PID = func(ctx context.Context, _ agent.Hello) (int, error) { return s.b.execPID(ctx, stream.session) }
	}
	conn, err := agent.Dial(ctx, stream, opts)
	if err == nil {
		return conn, nil
	}
	said := errors.New(stream.Stderr())
	if lacksPython(said) || errors.Is(err, sandbox.ErrUnsupported) {
		return nil, fail(sandbox.ErrUnsupported, errors.Join(err, said), "the image has no python3 of version 3.9 or newer")
	}
	return nil, s.diagnose(ctx, errors.Join(err, said))
}

func lacksPython(err error) bool {
	return says(err, "python3") && says(err, "not found", "no such file")
}

// diagnose finds out why no agent could be started: a container that is gone is
// sandbox.ErrLost, to be made again.
func (s *Sandbox) diagnose(ctx context.Context, cause error) error {
	s.b.log.Warn("agent did not start", "sandbox", s.spec.ID, "error", cause)
	if ctx.Err() != nil {
		return fail(sandbox.ErrUnavailable, cause, "the sandbox's agent did not start in time")
	}
	data, err := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(err):
		return fail(sandbox.ErrLost, cause, "the container is gone")
	case err != nil:
		return explain(ctx, "look at the container", err)
	case !healthy(data):
		return fail(sandbox.ErrLost, cause, "the container is %s", data.State.Status)
	}
	return explain(ctx, "start the sandbox's agent", cause)
}

// revive makes the container fit for another agent after one was lost: it runs,
// and nothing of the lost one's is left in it.
func (s *Sandbox) revive(ctx context.Context, lost *dialing) error {
	cause := lost.err
	if cause == nil {
		cause = lost.conn.Err()
	}
	s.b.log.Warn("agent lost", "sandbox", s.spec.ID, "error", cause)
	data, err := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(err):
		return fail(sandbox.ErrLost, cause, "the container is gone")
	case err != nil:
		return explain(ctx, "look at the container", err)
	case !healthy(data):
		return fail(sandbox.ErrLost, cause, "the container is %s", data.State.Status)
	}
	if err := s.b.wake(ctx, s.name, data); err != nil {
		return err
	}
	if lost.conn == nil || s.emptied(ctx) {
		return nil
	}
	return s.restart(ctx)
}

func (s *Sandbox) restart(ctx context.Context) error {
	err := s.b.do(ctx, request{method: http.MethodPost, path: containerPath(s.name, "/restart"), query: url.Values{"t": {"0"}}})
	if isAnswer(err) { // it ended meanwhile, or can't be ended
		return fail(sandbox.ErrLost, err, "the container did not restart")
	}
	return explain(ctx, "restart the container", err)
}

// emptied waits a moment until only pid 1 is left. What it can't see counts as left.
func (s *Sandbox) emptied(ctx context.Context) bool {
	for deadline := time.Now().Add(goneTimeout); ; {
		var top struct{ Processes [][]string }
		err := s.b.do(ctx, request{
			method: http.MethodGet, path: containerPath(s.name, "/top"), query: url.Values{"ps_args": {"pid,args"}, "stream": {"false"}}, out: &top,
		})
		if err == nil && len(top.Processes) == 1 {
			return true
		}
		if err != nil || time.Now().After(deadline) || !pause(ctx, 1) {
			s.b.log.Warn("processes of a lost agent are left", "sandbox", s.spec.ID, "processes", top.Processes, "error", err)
			return false
		}
	}
}
