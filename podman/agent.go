package podman

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// goneTimeout is the time for the programs of a lost connection to end.
var goneTimeout = patience.For(time.Second)

// connection returns the handle on the container's agent.
func (s *Sandbox) connection() *resident.Agent {
	return resident.New(&resident.Options{
		Link: s.link(), Explain: s.diagnose, Check: s.isOurs, Revive: s.revive,
		Logger: s.b.log.With("sandbox", s.spec.ID),
	})
}

// link returns the way to the agent. gVisor's processes aren't visible on the host.
func (s *Sandbox) link() resident.Link {
	relayed := resident.Relayed{Exec: s.relay}
	if s.b.isGVisor() {
		return relayed
	}
	return resident.FirstOf{resident.Taken{PID: s.firstPID}, relayed}
}

// relay executes a program of the agent's in the container, attached.
func (s *Sandbox) relay(ctx context.Context, argv []string) (io.ReadWriteCloser, error) {
	return s.b.exec(ctx, s.name, execConfig{Cmd: argv, User: "0:0", WorkingDir: "/"})
}

// firstPID returns the host's process ID of the container's first process, if the container runs on
// this machine: a service behind a socket in the file system sees our files.
func (s *Sandbox) firstPID(ctx context.Context) (int, error) {
	if s.isFar(ctx) {
		return 0, fmt.Errorf("%w: the service may be on another machine", resident.ErrNoWay)
	}
	data := s.seen.Swap(nil)
	if data == nil {
		var err error
		if data, err = s.b.inspect(ctx, s.name); err != nil {
			return 0, err
		}
	}
	if err := running(data, nil); err != nil {
		return 0, err
	}
	return data.State.Pid, nil
}

// isOurs checks that the agent sees the given workspace: a service on another machine, or in another
// mount namespace, has a different directory at that path.
func (s *Sandbox) isOurs(hello agent.Hello) error {
	if s.b.isGVisor() {
		return nil // its kernel numbers files itself; the mount's source is compared
	}
	if hello.Workspace != [2]uint64{s.pin.dev, s.pin.ino} {
		return fail(sandbox.ErrUnavailable, nil, "podman's service does not see this host's workspace; it must run on this machine, in the same mount namespace")
	}
	return nil
}

// diagnose finds out why the agent could not be reached. A container that is gone is sandbox.ErrLost,
// so that it is created again.
func (s *Sandbox) diagnose(ctx context.Context, cause error) error {
	s.b.log.Warn("agent not reached", "sandbox", s.spec.ID, "error", cause)
	if ctx.Err() != nil {
		return fail(sandbox.ErrUnavailable, cause, "the sandbox's agent did not answer in time")
	}
	data, err := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(err):
		return fail(sandbox.ErrLost, cause, "the container is gone")
	case err != nil:
		return explain(ctx, "look at the container", err)
	}
	if err := running(data, cause); err != nil {
		return err
	}
	return explain(ctx, "reach the sandbox's agent", cause)
}

// running returns an error for a container in which no program can be started.
func running(data *define.InspectContainerData, cause error) error {
	if healthy(data) {
		return nil
	}
	return fail(sandbox.ErrLost, cause, "the container is %s", data.State.Status)
}

// revive prepares the container for a new connection after one was lost. The agent says hello once the
// programs of the lost connection have ended. An agent behind a relay may not have noticed the loss: if
// programs are left then, the container is restarted.
func (s *Sandbox) revive(ctx context.Context, lost error) error {
	data, err := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(err):
		return fail(sandbox.ErrLost, lost, "the container is gone")
	case err != nil:
		return explain(ctx, "look at the container", err)
	}
	if err := running(data, lost); err != nil {
		return err
	}
	if err := s.wake(ctx, data); err != nil {
		return err
	}
	if !s.isFar(ctx) || s.emptied(ctx) {
		return nil
	}
	return s.restart(ctx)
}

// isFar reports whether the agent's process isn't one of this machine.
func (s *Sandbox) isFar(ctx context.Context) bool {
	e, err := s.b.engine(ctx)
	return err != nil || e.conn.URI.Scheme != "unix" || s.b.isGVisor()
}

func (s *Sandbox) restart(ctx context.Context) error {
	err := s.b.devices.during(func() error {
		return s.b.do(ctx, request{method: http.MethodPost, path: containerPath(s.name, "/restart"), query: url.Values{"t": {"0"}}})
	})
	if isAnswer(err) { // it ended meanwhile, or can't be ended
		return fail(sandbox.ErrLost, err, "the container did not restart")
	}
	if err != nil {
		return explain(ctx, "restart the container", err)
	}
	data, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return explain(ctx, "look at the container", err)
	}
	s.bound(ctx, data) // its namespaces are new
	return nil
}

// emptied waits a moment until only the agent's own processes are left, which are those
// with capabilities. A process that it can't see counts as left.
func (s *Sandbox) emptied(ctx context.Context) bool {
	for deadline := time.Now().Add(goneTimeout); ; {
		var top struct{ Processes [][]string }
		err := s.b.do(ctx, request{
			method: http.MethodGet, path: containerPath(s.name, "/top"), query: url.Values{"ps_args": {"capeff,pid,args"}, "stream": {"false"}}, out: &top,
		})
		left := programs(top.Processes)
		if err == nil && len(left) == 0 {
			return true
		}
		if err != nil || time.Now().After(deadline) || !pause(ctx, 1) {
			s.b.log.Info("programs are left after a lost connection", "sandbox", s.spec.ID, "processes", left, "error", err)
			return false
		}
	}
}

// programs returns the processes of a list that have no capability.
func programs(processes [][]string) (left [][]string) {
	for _, p := range processes {
		if len(p) == 0 || p[0] == "none" {
			left = append(left, p)
		}
	}
	return left
}
