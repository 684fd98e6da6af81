package podman

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// verify checks a container that has just started: that its isolation is the one
// that was asked for, that a program runs, that it sees the workspace, and in
// strict mode that all limits hold.
func (s *Sandbox) verify(ctx context.Context, c container) error {
	data, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return explain(ctx, "look at the container", err)
	}
	if wrong := c.differences(data); len(wrong) > 0 {
		s.b.log.Error("container is not what was asked", "sandbox", s.spec.ID, "differences", wrong)
		return fail(sandbox.ErrUnavailable, nil, "podman made a container that is not isolated as asked (%s)", strings.Join(wrong, ", "))
	}
	if err := s.seesWorkspace(ctx); err != nil {
		return err
	}
	if err := s.filtered(ctx); err != nil {
		return err
	}
	if !s.spec.Strict {
		return nil
	}
	return s.strict(ctx)
}

// filtered: Podman's description doesn't tell about seccomp, the kernel does.
func (s *Sandbox) filtered(ctx context.Context) error {
	r, err := s.runner(ctx)
	if err != nil {
		return err
	}
	conn, ok := r.(*agent.Conn)
	held := !ok || conn.Hello().Seccomp
	if s.b.isGVisor() {
		held, err = s.sentryFiltered(ctx)
	}
	if err != nil || held {
		return err
	}
	return fail(sandbox.ErrUnavailable, nil, "podman made a container without a seccomp filter")
}

func (s *Sandbox) strict(ctx context.Context) error {
	limits, gaps, err := s.readBack(ctx)
	if err != nil {
		return err
	}
	var open []string
	for _, l := range limits {
		if !l.Enforced && l.By != byWatcher {
			open = append(open, l.Name+": "+l.By)
		}
	}
	open = append(open, gaps...)
	if len(open) > 0 {
		return fail(sandbox.ErrUnavailable, nil, "strict mode: not everything asked holds on this host (%s)", strings.Join(open, "; "))
	}
	return nil
}

// differences names what Podman says of the container and we did not ask for.
func (c container) differences(data *define.InspectContainerData) []string {
	h := data.HostConfig
	caps := slices.Clone(data.BoundingCaps)
	slices.Sort(caps)
	var wrong []string
	expect := func(ok bool, what string) {
		if !ok {
			wrong = append(wrong, what)
		}
	}
	expect(!h.Privileged, "privileged")
	expect(h.NetworkMode == "none", "network")
	expect(h.ReadonlyRootfs, "read-only root")
	expect(slices.Equal(caps, c.caps), "capabilities")
	expect(slices.Contains(h.SecurityOpt, "no-new-privileges"), "no_new_privs")
	expect(h.PidMode == "private" && h.IpcMode != "host" && h.UTSMode != "host", "namespaces")
	expect(h.UsernsMode == "private" && h.IDMappings != nil &&
		slices.Contains(h.IDMappings.UIDMap, c.userns.sign()) && slices.Contains(h.IDMappings.GIDMap, c.userns.sign()), "user namespace")
	expect(slices.Equal(slices.Sorted(maps.Keys(h.Tmpfs)), []string{"/dev/shm", "/run", sandbox.SecretsDir, "/tmp"}), "tmpfs")
	expect(len(h.Devices) == 0, "devices")
	expect(c.mountsAgree(data.Mounts), "mounts")
	expect(data.Config.User == "0:0", "user")
	expect(!c.gvisor || data.OCIRuntime == runscName, "runtime")
	return wrong
}

// mountsAgree: the workspace and the empty resolv.conf, and nothing else of the
// host.
func (c container) mountsAgree(mounts []define.InspectMount) bool {
	for _, m := range mounts {
		switch {
		case m.Destination == sandbox.WorkspaceDir && m.Source == c.workspace && m.RW:
			if !slices.Contains(m.Options, "nosuid") || !slices.Contains(m.Options, "nodev") {
				return false
			}
		case m.Destination == "/etc/resolv.conf" && m.Source == c.files.empty && !m.RW:
		default:
			return false
		}
	}
	return len(mounts) == 2
}

// seesWorkspace runs a first program that looks at the workspace: a service on
// another machine, or in another mount namespace, has something else there.
func (s *Sandbox) seesWorkspace(ctx context.Context) error {
	var out strings.Builder
	result, err := s.Run(ctx, sandbox.Cmd{
		Argv: []string{"stat", "-c", "%d %i", sandbox.WorkspaceDir}, Stdout: &out, Timeout: 10 * time.Second,
		Capture: &sandbox.Capture{Forward: 100},
	})
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fail(ctx.Err(), nil, "could not reach the sandbox in time")
	}
	if result.Status == sandbox.StatusExited && result.ExitCode == sandbox.ExitNotFound {
		return nil // an image without stat
	}
	if result.Status != sandbox.StatusExited || result.ExitCode != 0 {
		return fail(sandbox.ErrLost, nil, "a first program in the sandbox ended as %s with exit code %d", result.Status, result.ExitCode)
	}
	if s.b.isGVisor() {
		return nil // its kernel numbers files itself; the mount's source was compared
	}
	if strings.TrimSpace(out.String()) != fmt.Sprintf("%d %d", s.pin.dev, s.pin.ino) {
		return fail(sandbox.ErrUnavailable, nil, "podman's service does not see this host's workspace; it must run on this machine, in the same mount namespace")
	}
	return nil
}

// tmpSize is how large the kernel says /tmp is, 0 when nobody says.
func (s *Sandbox) tmpSize(ctx context.Context) int64 {
	var out strings.Builder
	_, err := s.Run(ctx, sandbox.Cmd{
		Argv: []string{"stat", "-f", "-c", "%S %b", "/tmp"}, Stdout: &out, Timeout: 10 * time.Second,
		Capture: &sandbox.Capture{Forward: 100},
	})
	size, blocks, ok := strings.Cut(strings.TrimSpace(out.String()), " ")
	if err != nil || !ok {
		return 0
	}
	a, _ := strconv.ParseInt(size, 10, 64)
	b, _ := strconv.ParseInt(blocks, 10, 64)
	return a * b
}
