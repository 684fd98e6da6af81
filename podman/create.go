package podman

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/containers/podman/v5/pkg/specgen"

	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/undo"
	"github.com/wisbox/wisbox/sandbox"
)

var (
	createTimeout = patience.For(2 * time.Minute) // of one request; the first one may copy the image
	undoTimeout   = patience.For(30 * time.Second)
)

// Create creates and starts a container, connects to its agent and checks that the container is as
// requested. If it returns an error, the container is gone. At most Options.MaxCreates run at once; the
// others wait.
func (b *Backend) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec.Limits = spec.Limits.WithDefaults()
	pin, err := check(spec)
	if err != nil {
		return nil, err
	}
	b = b.level(spec.Isolation)
	select {
	case b.creates <- struct{}{}:
		defer func() { <-b.creates }()
	case <-ctx.Done():
		return nil, fail(ctx.Err(), nil, "gave up waiting to create a container")
	}
	s, err := b.create(ctx, spec, pin)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (b *Backend) create(ctx context.Context, spec sandbox.Spec, pin dirPin) (*Sandbox, error) {
	start := time.Now()
	var cleanup undo.Steps
	defer cleanup.Run()
	c, err := b.container(ctx, spec)
	if err != nil {
		return nil, err
	}
	err = b.make(ctx, c, &cleanup)
	if err != nil {
		return nil, err
	}
	created := time.Now()
	if err := b.start(ctx, c.name); err != nil {
		return nil, err
	}
	started := time.Now()
	s := b.newSandbox(spec, pin, c.imageEnv)
	cleanup.Add(func() { _ = s.Detach() })
	if err := s.verify(ctx, c); err != nil {
		return nil, err
	}
	cleanup.Keep()
	b.log.Info("sandbox created", "sandbox", spec.ID, "create", created.Sub(start), "start", started.Sub(created), "agent", time.Since(started))
	return s, nil
}

// container collects the input of the create request.
func (b *Backend) container(ctx context.Context, spec sandbox.Spec) (container, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return container{}, err
	}
	image, err := b.inspectImage(ctx, spec.Image)
	if isNotFound(err) {
		return container{}, fail(sandbox.ErrUnavailable, err, "image %s not found; %s", spec.Image, howToGet(spec.Image))
	}
	if err != nil {
		return container{}, explain(ctx, "look at the image", err)
	}
	if err := image.fits(spec.Image); err != nil {
		return container{}, err
	}
	files, err := b.writeHostFiles(spec)
	if err != nil {
		return container{}, err
	}
	return container{
		name: b.name(spec.ID), hostname: hostName(spec), image: spec.Image, imageEnv: image.Config.Env, workspace: spec.Workspace, files: files,
		limits: spec.Limits, userns: b.userns(e, spec), selinux: e.info.Host.Security.SELinuxEnabled,
		gvisor: b.isGVisor(), stacked: e.info.stacksProfiles() && !b.isGVisor(), parent: e.info.groupParent(), ipcBounds: e.info.boundsIPC() && !b.isGVisor(), fileTable: fileTable(),
		lowPorts: spec.LowPorts && !b.isGVisor(), userHome: spec.UserHome, labels: b.labels(spec),
	}, nil
}

func (b *Backend) labels(spec sandbox.Spec) map[string]string {
	return map[string]string{
		labelRoot: b.opts.Root, labelSandbox: spec.ID, labelBoot: bootID(),
		labelOwner: strconv.Itoa(os.Getuid()), labelAttempt: rand.Text(), labelMaker: maker(os.Getpid()),
		labelAgent: agentVersion,
	}
}

// make creates the container. The request outlives ctx: if it were cut off, it could still create the
// container later, unnoticed.
func (b *Backend) make(ctx context.Context, c container, cleanup *undo.Steps) error {
	if err := c.userns.usable(); err != nil {
		return err
	}
	err := b.post(ctx, c, c.generate())
	if isTaken(err) {
		if err = b.clear(ctx, c); err != nil {
			return err
		}
		err = b.post(ctx, c, c.generate())
	}
	if isTaken(err) {
		return fail(sandbox.ErrExists, err, "another process made it meanwhile; open it")
	}
	if err == nil || !isAnswer(err) {
		cleanup.Add(func() { b.undoCreate(ctx, c) })
	}
	if err == nil && ctx.Err() != nil {
		return fail(ctx.Err(), nil, "could not create the container in time")
	}
	return explain(ctx, "create the container", err)
}

// post sends a create request. If the service ended meanwhile, it repeats the request once, with the service that is
// found or started then; what the first one left behind has the same name.
func (b *Backend) post(ctx context.Context, c container, spec *specgen.SpecGenerator) error {
	e, broken := b.postOnce(ctx, spec)
	if !isBroken(broken) || ctx.Err() != nil {
		return broken
	}
	b.log.Warn("podman's service ended; the container is created again", "name", c.name, "error", broken)
	if e != nil {
		b.forget(e)
	}
	_, err := b.postOnce(ctx, spec)
	if err == nil || isAnswer(err) {
		return err
	}
	return errors.Join(broken, err)
}

// postOnce also returns the service that was in use, or nil.
func (b *Backend) postOnce(ctx context.Context, spec *specgen.SpecGenerator) (*engine, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return nil, err
	}
	err = b.do(context.WithoutCancel(ctx), request{method: http.MethodPost, path: "/containers/create", body: spec, limit: createTimeout})
	if words := e.log.lastWords(); isBroken(err) && words != "" {
		err = &endedError{words, err}
	}
	return e, err
}

func isTaken(err error) bool {
	return says(err, "already in use", "name is in use") || hasStatus(err, http.StatusConflict)
}

// isAnswer reports whether the service itself answered that it created nothing.
func isAnswer(err error) bool {
	var api *apiError
	return errors.As(err, &api)
}

// clear removes a container with the name of c, unless it is a working sandbox. It may be our own if the
// answer to the first try was lost.
func (b *Backend) clear(ctx context.Context, c container) error {
	data, err := b.inspect(ctx, c.name)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return explain(ctx, "look at the container", err)
	}
	labels := data.Config.Labels
	if !b.owns(labels, c.labels[labelSandbox]) {
		return fail(sandbox.ErrUnavailable, nil, "a container that isn't wisbox's has the name of this sandbox; remove or rename it")
	}
	if labels[labelAttempt] != c.labels[labelAttempt] && (healthy(data) || beingMade(data)) {
		return fail(sandbox.ErrExists, nil, "another process made it; open it")
	}
	return b.remove(ctx, c.name)
}

// undoCreate removes the container if it is this attempt's.
func (b *Backend) undoCreate(ctx context.Context, c container) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	data, err := b.inspect(ctx, c.name)
	if isNotFound(err) || err == nil && data.Config.Labels[labelAttempt] != c.labels[labelAttempt] {
		return
	}
	if err == nil {
		err = b.remove(ctx, c.name)
	}
	if err != nil {
		b.log.Error("container of a failed create stays", "name", c.name, "error", err)
	}
}

func (b *Backend) start(ctx context.Context, name string) error {
	err := b.devices.during(func() error {
		return b.do(ctx, request{method: http.MethodPost, path: containerPath(name, "/start"), limit: createTimeout})
	})
	if err != nil {
		b.log.Warn("container did not start", "name", name, "error", err)
	}
	if isAnswer(err) && says(err, resident.Path) && says(err, "permission denied") {
		return fail(sandbox.ErrUnavailable, err, "the container does not start: its host refuses to execute the agent; "+
			"set WISBOX_CACHE to a directory from which containers can execute programs")
	}
	return explain(ctx, "start the container", err)
}
