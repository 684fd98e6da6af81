package podman

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Pauser = (*Sandbox)(nil)

// pauseTime bounds a pause, and a resume: whoever asked for it may be gone, and one that
// is half made would leave an agent that can't answer.
const pauseTime = 30 * time.Second

// suspendTime bounds the asking of the agent before: one that doesn't answer keeps no
// container from being paused.
const suspendTime = 5 * time.Second

func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), pauseTime)
}

// Pause freezes the container, its agent too: time limits don't run meanwhile. A rootless service on cgroup v1 can't do it.
// Once begun it doesn't end with ctx. Killed before it resumes, a process leaves a paused container, which goes on
// with the next Open, see [sandbox.Spec].Wake.
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

// suspend stops the time limits, which the pause doesn't depend on. pausing is held.
func (s *Sandbox) suspend(ctx context.Context) {
	if s.limits != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), suspendTime)
	defer cancel()
	s.limits = s.agent.Suspend(ctx)
}

// takeBack lets programs go on after a pause that failed: it may have been made all the
// same, and only a container that runs has an agent that answers. Of one that can't go on
// the next Resume lets the time limits go on.
func (s *Sandbox) takeBack(ctx context.Context) {
	ctx, cancel := lasting(ctx)
	defer cancel()
	if err := s.goOn(ctx); err != nil {
		s.b.log.Warn("let a container go on whose pause failed", "container", s.name, "error", err)
		return
	}
	s.limits(ctx)
	s.limits = nil
}

// freeze has the container stand still; one that does already is no error.
func (s *Sandbox) freeze(ctx context.Context) error {
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
		return fail(sandbox.ErrUnsupported, err, "podman can't pause this session's programs here: it takes the freezer of control groups, which a user without rights has on cgroup v2 alone; use cgroup v2, or run wisbox as root")
	}
	return fail(sandbox.ErrUnsupported, err, "podman can't pause this session's programs here, see `wisbox doctor`")
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
	if s.limits != nil {
		s.limits(ctx)
		s.limits = nil
	}
	return nil
}

// wake lets a container go on that is paused, and nobody here knows by whom. One that
// can't is lost.
func (s *Sandbox) wake(ctx context.Context, data *define.InspectContainerData) error {
	goOn := func() error {
		err := s.goOn(ctx)
		if errors.Is(err, errFrozen) {
			return fail(sandbox.ErrLost, errors.New(err.Error()), "the container was paused and can't go on")
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
	if err != nil && !errors.Is(err, sandbox.ErrLost) { // who has paused it needs it still
		return fail(sandbox.ErrUnavailable, err, "the sandbox is paused")
	}
	return err
}

// errFrozen is the cause where a container stays paused.
var errFrozen = errors.New("it is paused still")

// goOn lets the container go on; what counts is that it runs then, whoever did that.
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
		return fail(sandbox.ErrUnavailable, errors.Join(errFrozen, err), "podman can't let the container go on; try again, or see `wisbox doctor`")
	case !data.State.Running:
		return fail(sandbox.ErrLost, err, "the container is %s", data.State.Status)
	}
	return nil
}
