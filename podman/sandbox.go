package podman

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// Sandbox is a handle on one running container. It keeps one resident agent,
// started by the first program; when that is lost, the next program starts
// another. Its methods may be called from many goroutines.
type Sandbox struct {
	b    *Backend
	spec sandbox.Spec
	pin  dirPin // the workspace that the container was made with
	name string
	env  []string

	life context.Context // ends with the handle
	end  context.CancelFunc

	mu    sync.Mutex
	agent *dialing // the last one, nil before the first program
	plain *plain   // runs programs where the image has no Python
	// secrets are the files of sandbox.SecretsDir
	secrets map[string][]byte

	closing sync.Mutex // one Close at a time
}

var (
	_ sandbox.Sandbox      = (*Sandbox)(nil)
	_ sandbox.SecretKeeper = (*Sandbox)(nil)
)

func (b *Backend) newSandbox(spec sandbox.Spec, pin dirPin) *Sandbox {
	s := &Sandbox{b: b, spec: spec, pin: pin, name: b.name(spec.ID)}
	for _, key := range slices.Sorted(maps.Keys(spec.Env)) {
		s.env = append(s.env, key+"="+spec.Env[key])
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// Open attaches to a running sandbox that another process made from the same
// spec. One that is paused goes on: who paused it may have been killed. One that
// doesn't run any more is removed, and sandbox.ErrNotFound wrapped.
func (b *Backend) Open(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	spec.Limits = spec.Limits.WithDefaults()
	pin, err := check(spec)
	if err != nil {
		return nil, err
	}
	b = b.level(spec.Isolation)
	data, err := b.inspectMade(ctx, b.name(spec.ID))
	switch {
	case isNotFound(err):
		return nil, fail(sandbox.ErrNotFound, err, "no sandbox %s", spec.ID)
	case err != nil:
		return nil, explain(ctx, "look at the container", err)
	case !b.owns(data.Config.Labels, spec.ID):
		return nil, fail(sandbox.ErrUnavailable, nil, "a container that isn't wisbox's has the name of this sandbox; remove or rename it")
	}
	s := b.newSandbox(spec, pin)
	err = errors.New("it doesn't run")
	if healthy(data) {
		if err = b.wake(ctx, s.name, data); err == nil {
			err = s.seesWorkspace(ctx)
		}
	}
	if err == nil {
		return s, nil
	}
	s.Detach()
	if ctx.Err() != nil {
		return nil, fail(ctx.Err(), err, "could not open the sandbox in time")
	}
	if errors.Is(err, sandbox.ErrUnavailable) {
		return nil, err
	}
	b.log.Info("broken sandbox removed", "sandbox", spec.ID, "state", data.State.Status, "reason", err)
	if err := b.remove(ctx, s.name); err != nil {
		return nil, err
	}
	return nil, fail(sandbox.ErrNotFound, err, "sandbox %s was not usable any more and is removed; make it again", spec.ID)
}

// inspectMade waits for a container that another process is just making.
func (b *Backend) inspectMade(ctx context.Context, name string) (*define.InspectContainerData, error) {
	for {
		data, err := b.inspect(ctx, name)
		if err != nil || !beingMade(data) || !pause(ctx, 1) {
			return data, err
		}
	}
}

// Run runs one program to its end, see [sandbox.Runner]. It wraps
// sandbox.ErrLost when the container is gone: make the sandbox again.
func (s *Sandbox) Run(ctx context.Context, cmd sandbox.Cmd) (sandbox.Result, error) {
	var result sandbox.Result
	if err := checkCmd(cmd); err != nil {
		return result, err
	}
	err := s.with(ctx, func(r sandbox.Runner) (err error) {
		result, err = r.Run(ctx, s.prepare(cmd))
		return err
	})
	if err != nil && ctx.Err() != nil {
		return sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + 9}, nil
	}
	return result, err
}

// Start begins a program, see [sandbox.Runner].
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Cmd) (sandbox.Process, error) {
	if err := checkCmd(cmd); err != nil {
		return nil, err
	}
	var process sandbox.Process
	err := s.with(ctx, func(r sandbox.Runner) (err error) {
		process, err = r.Start(ctx, s.prepare(cmd))
		return err
	})
	return process, err
}

// with gives op a runner, and once more another when the agent was lost before
// op's program began.
func (s *Sandbox) with(ctx context.Context, op func(sandbox.Runner) error) error {
	if err := s.checkPin(); err != nil {
		return err
	}
	if err := s.life.Err(); err != nil {
		return errClosed(err)
	}
	for try := 1; ; try++ {
		r, err := s.runner(ctx)
		if err != nil {
			return err
		}
		err = op(r)
		if try == 2 || !errors.Is(err, sandbox.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// checkPin: a workspace that was deleted or replaced is not what the container
// sees any more.
func (s *Sandbox) checkPin() error {
	pin, err := pinDir(s.spec.Workspace)
	if err != nil || pin != s.pin {
		return fail(sandbox.ErrLost, err, "the workspace's directory was removed or replaced; open the session again")
	}
	return nil
}

// prepare adds the sandbox's variables, before the program's own: later ones win.
func (s *Sandbox) prepare(cmd sandbox.Cmd) sandbox.Cmd {
	if len(s.env) > 0 {
		cmd.Env = slices.Concat(s.env, cmd.Env)
	}
	return cmd
}

func (s *Sandbox) runner(ctx context.Context) (sandbox.Runner, error) {
	s.mu.Lock()
	plain := s.plain
	s.mu.Unlock()
	if plain != nil {
		return plain, nil
	}
	conn, err := s.connect(ctx)
	if errors.Is(err, sandbox.ErrUnsupported) {
		return s.fallBack(err), nil
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

func (s *Sandbox) connect(ctx context.Context) (*agent.Conn, error) {
	if s.b.opts.OneShot {
		return s.dial(ctx, true)
	}
	return s.resident(ctx)
}

// Detach gives up the handle: its programs end, the container stays.
func (s *Sandbox) Detach() error {
	s.end()
	s.mu.Lock()
	d := s.agent
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	<-d.done
	if d.conn != nil {
		return d.conn.Close()
	}
	return nil
}

// Close ends every program and removes the container. When it fails it may be
// called again; after it succeeded a further call does nothing.
func (s *Sandbox) Close(ctx context.Context) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	s.Detach()
	return s.b.remove(ctx, s.name)
}

// Info tells what the container is, and which limits the kernel enforces.
// Disk and inodes are listed as not enforced: who watches the workspace knows more.
func (s *Sandbox) Info(ctx context.Context) (sandbox.Info, error) {
	data, err := s.b.inspect(ctx, s.name)
	if isNotFound(err) {
		return sandbox.Info{}, fail(sandbox.ErrNotFound, err, "no sandbox %s", s.spec.ID)
	}
	if err != nil {
		return sandbox.Info{}, explain(ctx, "look at the container", err)
	}
	info := s.describe(data)
	if e, err := s.b.engine(ctx); err == nil {
		info.Runtime = e.info.runtimeName()
	}
	if data.State.Running && !data.State.Paused {
		info.Limits, info.Gaps, err = s.readBack(ctx)
	}
	if s.b.isGVisor() {
		info.Gaps = slices.Concat(info.Gaps, gvisorGaps)
	}
	return info, err
}

func (s *Sandbox) describe(data *define.InspectContainerData) sandbox.Info {
	return sandbox.Info{
		ID: s.spec.ID, Object: data.ID, State: data.State.Status, Image: data.ImageName,
		Labels: data.Config.Labels, Created: data.Created.Truncate(time.Second),
	}
}
