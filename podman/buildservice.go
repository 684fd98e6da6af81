package podman

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"

	"github.com/wisbox/wisbox/internal/patience"
)

const (
	buildIdle = 5 * time.Second       // of a build's service whose client was killed
	buildLook = 10 * time.Millisecond // between two looks at what a build that ends still does
)

var buildEnd = patience.For(20 * time.Second) // to end what a build was doing

// builder returns the service for one build. Podman continues a RUN step when its client leaves; only a
// signal to the service ends the step. So a build by our own service gets a separate process, which end
// stops. A service that isn't ours runs the build itself, and may continue a step.
func (b *Backend) builder(ctx context.Context) (e *engine, end func(), err error) {
	if e, err = b.living(ctx); err != nil || !e.own {
		return e, func() {}, err
	}
	s, err := b.newService()
	if err != nil {
		return nil, nil, err
	}
	s.idle, s.ours = buildIdle, true
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	one, stop, err := s.startForOne(startCtx)
	if err != nil {
		return nil, nil, explain(ctx, "start a service for the build", err)
	}
	one.info = e.info // the same store's
	return one, stop, nil
}

// startForOne starts a service that no other process finds.
func (s *service) startForOne(ctx context.Context) (*engine, func(), error) {
	lock, err := s.lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()
	env, err := s.configure(ctx)
	if err != nil {
		return nil, nil, err
	}
	socket := filepath.Join(s.dir, "b"+rand.Text()[:6])
	cmd, exited, err := s.spawn(env, socket)
	if err != nil {
		return nil, nil, err
	}
	stop := sync.OnceFunc(func() {
		endBuild(cmd.Process, exited)
		_ = os.Remove(socket)
	})
	if err := s.await(ctx, socket, exited); err != nil {
		stop()
		return nil, nil, &startError{cause: err, tail: s.logTail()}
	}
	e, err := dial(ctx, "the build's own podman service", bindings.Options{URI: "unix://" + socket})
	if err != nil {
		stop()
		return nil, nil, err
	}
	e.alone = true
	return e, func() { stop(); e.close() }, nil
}

// endBuild stops a build's service and its remaining processes: a signal at the very beginning of a RUN
// step ends only the process that watches the step.
func endBuild(service *os.Process, exited <-chan error) {
	left := descendants{}
	defer left.kill()
	left.look(service.Pid)
	_ = service.Signal(syscall.SIGTERM)
	late := time.After(buildEnd)
	again := time.NewTicker(buildLook)
	defer again.Stop()
	for {
		select {
		case <-exited: //nolint:errcheck // the build has its own
			return
		case <-late:
			_ = service.Kill()
			late = nil
		case <-again.C:
			left.look(service.Pid)
		}
	}
}
