package podman

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// Sandbox is a handle on one running container. It keeps one connection to the container's agent, which the first
// program makes; if it is lost, the next program makes another. Its methods may be called from several goroutines.
type Sandbox struct {
	sandbox.FileSystem // is files

	b     *Backend
	spec  sandbox.Spec
	pin   dirPin // the workspace with which the container was created
	name  string
	env   []string // of every program: the image's, then the spec's
	agent *resident.Agent
	files *files.FS

	// seen is Podman's last description of the container; the next connection uses it instead of asking again. The
	// agent's answer proves that the container is this session's.
	seen atomic.Pointer[define.InspectContainerData]

	closing sync.Mutex // allows one Close at a time

	logs logKeepers // of its companions

	pausing sync.Mutex            // allows one Pause or Resume at a time
	clocks  func(context.Context) // restarts the time limits that this handle stopped, nil if it stopped none

	resized atomic.Pointer[sandbox.Limits] // nil until Resize
}

var (
	_ sandbox.Sandbox       = (*Sandbox)(nil)
	_ sandbox.SecretKeeper  = (*Sandbox)(nil)
	_ sandbox.ProgramFinder = (*Sandbox)(nil)
	_ sandbox.Ender         = (*Sandbox)(nil)
)

func (b *Backend) newSandbox(spec sandbox.Spec, pin dirPin, imageEnv []string) *Sandbox {
	s := &Sandbox{b: b, spec: spec, pin: pin, name: b.name(spec.ID), env: resident.ProgramEnv(imageEnv)}
	if spec.UserHome {
		s.env = append(s.env, sandbox.UserEnv()...)
	}
	s.env = append(s.env, spec.Variables(s.env)...)
	s.agent = s.connection()
	s.files = files.New(filesStarter{s})
	s.FileSystem = s.files
	return s
}

// Open attaches to a running sandbox that another process made from the same
// spec. Open resumes a paused sandbox, see [sandbox.Spec].Wake: the process that paused it may have been killed. It
// removes a sandbox that no longer runs and returns an error that wraps sandbox.ErrNotFound.
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
	s := b.newSandbox(spec, pin, b.envOf(ctx, data.Image))
	if err = s.adopt(ctx, data); err == nil {
		return s, nil
	}
	_ = s.Detach()
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
	return nil, fail(sandbox.ErrNotFound, err, "sandbox %s was no longer usable and was removed; create it again", spec.ID)
}

var (
	errStopped = errors.New("it doesn't run")
	errFormer  = errors.New("it was created by another version of wisbox, whose agent is incompatible")
)

// adopt connects to a container that another process made.
func (s *Sandbox) adopt(ctx context.Context, data *define.InspectContainerData) error {
	switch {
	case data.Config.Labels[labelAgent] != agentVersion:
		return errFormer
	case !healthy(data):
		return errStopped
	}
	if err := s.wake(ctx, data); err != nil {
		return err
	}
	s.bound(ctx, data) // its creator may have been killed before that
	if _, err := s.agent.Conn(ctx); err != nil {
		return err
	}
	s.keepSize(ctx)
	return nil
}

// inspectMade waits for a container that another process is creating.
func (b *Backend) inspectMade(ctx context.Context, name string) (*define.InspectContainerData, error) {
	for {
		data, err := b.inspect(ctx, name)
		if err != nil || !beingMade(data) || !pause(ctx, 1) {
			return data, err
		}
	}
}

// Run runs one program to its end, see [sandbox.Runner]. The error wraps sandbox.ErrLost if the container is gone:
// create the sandbox again.
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

// with calls op with the connection, and again with another one if the first was lost before op's program began.
func (s *Sandbox) with(ctx context.Context, op func(sandbox.Runner) error) error {
	if err := s.checkPin(); err != nil {
		return err
	}
	return s.agent.With(ctx, func(conn *agent.Conn) error { return op(conn) })
}

// checkPin refuses a workspace that was deleted or replaced: the container still sees the old one.
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

// HasProgram implements [sandbox.ProgramFinder], with the programs that the agent found at its start.
func (s *Sandbox) HasProgram(ctx context.Context, name string) (bool, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return false, err
	}
	has, known := conn.Hello().Has[name]
	if !known {
		return false, fail(sandbox.ErrUnsupported, nil, "the agent didn't look for the program %s", name)
	}
	return has, nil
}

// KeepSecrets implements [sandbox.SecretKeeper].
func (s *Sandbox) KeepSecrets(ctx context.Context, values map[string][]byte) error {
	return s.agent.KeepSecrets(ctx, values)
}

// EndAll implements [sandbox.Ender].
func (s *Sandbox) EndAll(_ context.Context, status sandbox.Status) error {
	s.agent.EndAll(status)
	return nil
}

// Detach gives up the handle: its programs end, except detached ones, and the container stays.
func (s *Sandbox) Detach() error {
	s.endLogs()
	return errors.Join(s.files.Close(), s.agent.Close())
}

// Close ends every program and removes the container. If it fails it may be called again; after a success further calls
// do nothing.
func (s *Sandbox) Close(ctx context.Context) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	_ = s.Detach()
	return s.b.remove(ctx, s.name)
}

// Info describes the container and the limits that the kernel enforces. Disk and inodes are listed as not enforced: the
// caller that watches the workspace enforces them.
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
		if info.Limits, info.Gaps, err = s.readBack(ctx); err == nil {
			info.Lacks, err = s.lacks(ctx)
		}
	}
	if s.b.isGVisor() {
		info.Gaps = slices.Concat(info.Gaps, gvisorGaps)
	}
	return info, err
}

// lacks returns the programs that the agent didn't find.
func (s *Sandbox) lacks(ctx context.Context) ([]string, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(conn.Hello().Has)) {
		if !conn.Hello().Has[name] {
			out = append(out, name)
		}
	}
	return out, nil
}

func (s *Sandbox) describe(data *define.InspectContainerData) sandbox.Info {
	return sandbox.Info{
		ID: s.spec.ID, Object: data.ID, State: data.State.Status, Image: data.ImageName,
		Labels: data.Config.Labels, Created: data.Created.Truncate(time.Second),
	}
}
