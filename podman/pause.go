package podman

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Pauser = (*Sandbox)(nil)

// pauseTime bounds a pause or a resume. Both continue without their caller: half a pause would leave an agent that
// can't answer.
var pauseTime = patience.For(30 * time.Second)

// suspendTime bounds the request to the agent before a pause: an agent that doesn't answer doesn't prevent the pause.
var suspendTime = patience.For(5 * time.Second)

func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), pauseTime)
}

// Pause freezes the container, its agent too: time limits don't run meanwhile. A rootless service on cgroup v1 can't
// pause. A pause that has begun doesn't end with ctx. If this process is killed before it resumes the container, the
// next Open does that, see [sandbox.Spec].Wake.
func (s *Sandbox) Pause(ctx context.Context) error {
	s.pausing.Lock()
	defer s.pausing.Unlock()
	if ctx.Err() != nil {
		return explain(ctx, "pause the container", ctx.Err())
	}
	s.suspend(ctx)
	ctx, cancel := lasting(ctx)
	defer cancel()
	err := s.freeze(ctx)
	if err != nil {
		s.takeBack(ctx)
	}
	return err
}

// suspend stops the time limits; the pause doesn't depend on its success. The caller holds pausing.
func (s *Sandbox) suspend(ctx context.Context) {
	if s.clocks != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), suspendTime)
	defer cancel()
	s.clocks = s.agent.Suspend(ctx)
}

// takeBack resumes the container after a pause that failed: Podman may have paused it all the same, and only a running
// container has an agent that answers. If that fails too, the next Resume restarts the time limits.
func (s *Sandbox) takeBack(ctx context.Context) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	if err := s.goOn(ctx); err != nil {
		s.b.log.Warn("resume a container whose pause failed", "container", s.name, "error", err)
		return
	}
	s.clocks(ctx)
	s.clocks = nil
}

// freezes bounds the attempts to pause a container: on a busy machine, a runtime may give up before the kernel has
// stopped all of its threads.
var freezes = retry.Times{Count: 4, Pause: 100 * time.Millisecond}

// errThawed is the cause if a container goes on running although it can be paused here.
var errThawed = errors.New("it still runs")

// freeze pauses the container; it isn't an error if it is paused already.
func (s *Sandbox) freeze(ctx context.Context) error {
	return freezes.Do(ctx, func(err error) bool { return errors.Is(err, errThawed) }, func() error { return s.tryFreeze(ctx) })
}

func (s *Sandbox) tryFreeze(ctx context.Context) error {
	err := s.b.do(ctx, request{method: http.MethodPost, path: containerPath(s.name, "/pause")})
	if !isAnswer(err) {
		return explain(ctx, "pause the container", err)
	}
	data, lookErr := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(lookErr):
		return fail(sandbox.ErrLost, err, "the container is gone")
	case lookErr != nil:
		return explain(ctx, "look at the container", lookErr)
	case data.State.Paused:
		return nil
	case !data.State.Running:
		return fail(sandbox.ErrLost, err, "the container is %s", data.State.Status)
	}
	if host, lookErr := s.b.Service(ctx); lookErr == nil && host.Rootless && host.CgroupVersion == "v1" {
		return fail(sandbox.ErrUnsupported, err, "podman can't pause this session's programs here: pausing needs the cgroup freezer, which rootless Podman has only with cgroup v2; use cgroup v2, or run wisbox as root")
	}
	return fail(sandbox.ErrUnsupported, fmt.Errorf("%w: %w", errThawed, err), "podman can't pause this session's programs here, see `wisbox doctor`")
}

// Resume implements [sandbox.Pauser]. It doesn't end with ctx.
func (s *Sandbox) Resume(ctx context.Context) error {
	s.pausing.Lock()
	defer s.pausing.Unlock()
	ctx, cancel := lasting(ctx)
	defer cancel()
	if err := s.goOn(ctx); err != nil {
		return err
	}
	if s.clocks != nil {
		s.clocks(ctx)
		s.clocks = nil
	}
	return nil
}

// wake resumes a paused container that another process may have paused. A container that can't be resumed is lost.
func (s *Sandbox) wake(ctx context.Context, data *define.InspectContainerData) error {
	goOn := func() error {
		err := s.goOn(ctx)
		if errors.Is(err, errFrozen) {
			return fail(sandbox.ErrLost, errors.New(err.Error()), "the container was paused and can't be resumed")
		}
		return err
	}
	switch {
	case !data.State.Paused:
		return nil
	case s.spec.Wake == nil:
		return goOn()
	}
	err := s.spec.Wake(ctx, goOn)
	if err != nil && !errors.Is(err, sandbox.ErrLost) { // the process that paused it still needs it
		return fail(sandbox.ErrUnavailable, err, "the sandbox is paused")
	}
	return err
}

// errFrozen is the cause if a container stays paused.
var errFrozen = errors.New("it is still paused")

// goOn resumes the container; it succeeds if the container runs afterwards, even if another process resumed it.
func (s *Sandbox) goOn(ctx context.Context) error {
	err := s.b.unpause(ctx, s.name)
	if err == nil {
		return nil
	}
	data, lookErr := s.b.inspect(ctx, s.name)
	switch {
	case isNotFound(lookErr):
		return fail(sandbox.ErrLost, err, "the container is gone")
	case lookErr != nil:
		return explain(ctx, "unpause the container", err)
	case data.State.Paused:
		return fail(sandbox.ErrUnavailable, errors.Join(errFrozen, err), "podman can't resume the container; try again, or see `wisbox doctor`")
	case !data.State.Running:
		return fail(sandbox.ErrLost, err, "the container is %s", data.State.Status)
	}
	return nil
}
