package beside

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/files"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/sandbox"
)

// Sandbox is a handle on the sandbox. Its methods may be called concurrently.
type Sandbox struct {
	sandbox.FileSystem // is files

	b     *Backend
	spec  sandbox.Spec
	pin   [2]uint64 // the workspace's device and inode
	rec   record
	agent *resident.Agent
	files *files.FS

	environ func() []string // of every program: the image's, then the spec's

	closing sync.Mutex // serializes Close
}

var (
	_ sandbox.Sandbox       = (*Sandbox)(nil)
	_ sandbox.SecretKeeper  = (*Sandbox)(nil)
	_ sandbox.ProgramFinder = (*Sandbox)(nil)
	_ sandbox.Ender         = (*Sandbox)(nil)
	_ sandbox.Detacher      = (*Sandbox)(nil)
	_ sandbox.SoleOwner     = (*Sandbox)(nil)
	_ sandbox.Networker     = (*Sandbox)(nil)
	_ sandbox.Renewer       = (*Sandbox)(nil)
	_ sandbox.PortFinder    = (*Sandbox)(nil)
)

func (b *Backend) newSandbox(spec sandbox.Spec, pin [2]uint64, rec record) *Sandbox {
	s := &Sandbox{b: b, spec: spec, pin: pin, rec: rec}
	s.agent = b.handle(b.link(), s)
	s.files = files.New(starter{s.agent})
	s.FileSystem = s.files
	s.environ = sync.OnceValue(s.environment)
	return s
}

// environment returns the image's environment, as stored by [Become], followed by the spec's.
func (s *Sandbox) environment() (env []string) {
	path := filepath.Join(filepath.Dir(s.b.opts.Socket), environFile)
	if err := jsonfile.Read(path, &env); err != nil {
		s.b.log.Warn("the image's environment can't be read", "error", err)
	}
	if s.spec.UserHome {
		env = append(env, sandbox.UserEnv()...)
	}
	return append(env, s.spec.Variables(env)...)
}

// begin prepares a claimed sandbox for its first program.
func (s *Sandbox) begin(ctx context.Context) error {
	conn, err := s.agent.Conn(ctx) // also checks the workspace, see isOurs
	if err != nil {
		return err
	}
	if err := s.b.clear(ctx, s.agent); err != nil {
		return err
	}
	if !conn.Hello().Seccomp && !s.b.unfiltered {
		return unavailable(nil, "the Pod has no seccomp filter; give it seccompProfile RuntimeDefault")
	}
	if s.spec.UserHome {
		if err := s.isHome(ctx); err != nil {
			return err
		}
	}
	if !s.spec.Strict {
		return nil
	}
	return s.strict(ctx)
}

// isHome checks that programs have the workspace as their home too: a directory created here
// must be visible there.
func (s *Sandbox) isHome(ctx context.Context) error {
	mark, err := os.MkdirTemp(s.spec.Workspace, ".wisbox-home-")
	if err != nil {
		return unavailable(err, "the workspace can't be written")
	}
	_, err = s.files.Stat(ctx, path.Join(s.b.home, filepath.Base(mark)), sandbox.StatOptions{})
	failed := os.Remove(mark)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return unavailable(nil, "the container of programs doesn't have the workspace at %s; create the Pod again with user_home, or leave user_home out", sandbox.UserHome)
	case err == nil && failed != nil:
		return unavailable(failed, "the workspace can't be written")
	}
	return err
}

// isOurs checks that the agent belongs to the claimed sandbox and has the same workspace.
func (s *Sandbox) isOurs(hello agent.Hello) error {
	if at, ok := socketOf(s.b.opts.Socket); !ok || at != s.rec.Agent {
		return errAgain
	}
	if hello.Workspace != s.pin {
		return unavailable(nil, "the container of programs has another directory at %s than the session; create the Pod again", sandbox.WorkspaceDir)
	}
	return nil
}

// revive checks after a lost connection that the sandbox still exists, with the same record and
// agent.
func (s *Sandbox) revive(ctx context.Context, _ error) error {
	rec, err := s.b.current(ctx)
	if err != nil {
		return err
	}
	if rec == nil || rec.Token != s.rec.Token {
		return errAgain
	}
	return nil
}

var errAgain = fmt.Errorf("%w: the container of programs has ended, or the sandbox was removed", sandbox.ErrLost)

// starter starts the agent's file mode over the existing connection.
type starter struct{ agent *resident.Agent }

// StartAgent implements files.Starter.
func (f starter) StartAgent(ctx context.Context, cmd sandbox.Cmd) (p sandbox.Process, err error) {
	err = f.agent.With(ctx, func(conn *agent.Conn) error {
		p, err = conn.StartAgent(ctx, cmd)
		return err
	})
	return p, err
}

// Run implements [sandbox.Runner].
func (s *Sandbox) Run(ctx context.Context, cmd sandbox.Cmd) (result sandbox.Result, err error) {
	err = s.with(ctx, &cmd, func(conn *agent.Conn) error {
		result, err = conn.Run(ctx, cmd)
		return err
	})
	if err != nil && ctx.Err() != nil {
		return sandbox.Result{Status: sandbox.StatusCancelled, ExitCode: sandbox.ExitSignalBase + 9}, nil
	}
	return result, err
}

// Start implements [sandbox.Runner].
func (s *Sandbox) Start(ctx context.Context, cmd sandbox.Cmd) (p sandbox.Process, err error) {
	err = s.with(ctx, &cmd, func(conn *agent.Conn) error {
		p, err = conn.Start(ctx, cmd)
		return err
	})
	return p, err
}

// with calls op with the connection, and again with a new one if the first was lost before op's
// program began. It puts the sandbox's variables before cmd's own, which override them.
func (s *Sandbox) with(ctx context.Context, cmd *sandbox.Cmd, op func(*agent.Conn) error) error {
	if c := cmd.Capture; cmd.Timeout < 0 || c != nil && (c.Forward < 0 || c.Tail < 0) {
		return invalid("the timeout or a capture size is negative")
	}
	if cmd.Dir != "" && !filepath.IsAbs(cmd.Dir) && !filepath.IsLocal(cmd.Dir) {
		return invalid("a directory must stay in the workspace, or be absolute")
	}
	if pin, err := pinOf(s.spec.Workspace); err != nil || pin != s.pin {
		return fmt.Errorf("%w: the workspace's directory was removed or replaced; open the session again", sandbox.ErrLost)
	}
	cmd.Env = slices.Concat(s.environ(), cmd.Env)
	return s.agent.With(ctx, op)
}

// HasProgram implements [sandbox.ProgramFinder].
func (s *Sandbox) HasProgram(ctx context.Context, name string) (bool, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return false, err
	}
	has, known := conn.Hello().Has[name]
	if !known {
		return false, fmt.Errorf("%w: the agent has not looked for the program %s", sandbox.ErrUnsupported, name)
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

// Detached implements [sandbox.Detacher].
func (s *Sandbox) Detached(ctx context.Context) (found []sandbox.DetachedProcess, err error) {
	err = s.agent.With(ctx, func(conn *agent.Conn) error {
		found, err = conn.Detached(ctx)
		return err
	})
	return found, err
}

// Attach implements [sandbox.Detacher].
func (s *Sandbox) Attach(ctx context.Context, id uint64, cmd sandbox.Cmd) (sandbox.Process, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Attach(ctx, id, cmd)
}

// EndOthers implements [sandbox.SoleOwner]. The kernel has already closed the connections of
// ended processes.
func (s *Sandbox) EndOthers(context.Context) error { return nil }

// Generation implements [sandbox.Renewer].
func (s *Sandbox) Generation(ctx context.Context) (uint64, error) { return s.agent.Generation(ctx) }

// Listen implements [sandbox.Networker].
func (s *Sandbox) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Listen(ctx, addr)
}

// ListenPacket implements [sandbox.Networker].
func (s *Sandbox) ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.ListenPacket(ctx, addr)
}

// DialPort implements [sandbox.Networker].
func (s *Sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.DialPort(ctx, port)
}

// DialAddr implements [sandbox.Networker].
func (s *Sandbox) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return conn.DialAddr(ctx, addr)
}

// Listens implements [sandbox.PortFinder].
func (s *Sandbox) Listens(ctx context.Context, port uint16) (bool, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return false, err
	}
	return conn.Listens(ctx, port)
}

// Detach implements [sandbox.Sandbox].
func (s *Sandbox) Detach() error { return errors.Join(s.files.Close(), s.agent.Close()) }

// Close implements [sandbox.Sandbox]. It may be called again after a failure.
func (s *Sandbox) Close(ctx context.Context) error {
	s.closing.Lock()
	defer s.closing.Unlock()
	return errors.Join(s.Detach(), s.b.remove(ctx, func(rec record) bool { return rec.Token == s.rec.Token }))
}
