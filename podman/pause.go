package podman

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Pauser = (*Sandbox)(nil)

// resumeTime bounds the resuming of a container, whose caller may be gone.
const resumeTime = 30 * time.Second

// Pause freezes the container, its agent too: time limits go on, and programs that
// are at theirs end when they go on. A rootless service on cgroup v1 can't do it.
// Killed before it resumes, a process leaves a paused container, which goes on
// with the next Open.
func (s *Sandbox) Pause(ctx context.Context) (resume func(), err error) {
	err = s.b.do(ctx, request{method: http.MethodPost, path: containerPath(s.name, "/pause")})
	if api := (*apiError)(nil); errors.As(err, &api) {
		return nil, fail(sandbox.ErrUnsupported, err, "podman can't pause this session's programs here")
	}
	if err != nil {
		return nil, explain(ctx, "pause the container", err)
	}
	return sync.OnceFunc(func() { s.resume(context.WithoutCancel(ctx)) }), nil
}

func (s *Sandbox) resume(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resumeTime)
	defer cancel()
	if err := s.b.unpause(ctx, s.name); err != nil {
		s.b.log.Warn("resume a paused container", "container", s.name, "error", err)
	}
}

// wake lets a container go on that is paused, and nobody here knows by whom.
func (b *Backend) wake(ctx context.Context, name string, data *define.InspectContainerData) error {
	if !data.State.Paused {
		return nil
	}
	err := b.unpause(ctx, name)
	if isAnswer(err) {
		if now, lookErr := b.inspect(ctx, name); lookErr == nil && !now.State.Paused {
			return nil // another process was quicker
		}
		return fail(sandbox.ErrLost, err, "the container is paused and can't go on")
	}
	return explain(ctx, "unpause the container", err)
}
