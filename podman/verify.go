package podman

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// verify checks a container that has just started: its isolation is as requested, its agent answers and sees the
// workspace, and in strict mode all limits hold.
func (s *Sandbox) verify(ctx context.Context, c container) error {
	data, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return explain(ctx, "look at the container", err)
	}
	if wrong := c.differences(data); len(wrong) > 0 {
		s.b.log.Error("container differs from the request", "sandbox", s.spec.ID, "differences", wrong)
		return fail(sandbox.ErrUnavailable, nil, "podman made a container that is not isolated as requested (%s)", strings.Join(wrong, ", "))
	}
	s.seen.Store(data)
	bounded := make(chan struct{})
	go func() { // starts two programs, while the agent starts too
		defer close(bounded)
		s.bound(ctx, data)
	}()
	conn, err := s.agent.Conn(ctx) // it checks the workspace, see isOurs
	<-bounded
	if err != nil {
		return err
	}
	if err := s.filtered(ctx, conn.Hello()); err != nil {
		return err
	}
	if c.stacked && !conn.Hello().NoNewPrivs {
		return fail(sandbox.ErrUnavailable, nil, "the sandbox's agent could not set no_new_privs for programs")
	}
	if !s.spec.Strict {
		return nil
	}
	return s.strict(ctx)
}

// filtered checks the seccomp filter in the kernel: Podman's description doesn't contain it.
func (s *Sandbox) filtered(ctx context.Context, hello agent.Hello) (err error) {
	held := hello.Seccomp || s.b.opts.unfiltered
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
		if !l.Enforced && l.By != resident.ByWatcher {
			open = append(open, l.Name+": "+l.By)
		}
	}
	open = append(open, gaps...)
	if len(open) > 0 {
		return fail(sandbox.ErrUnavailable, nil, "strict mode: this host does not enforce everything requested (%s)", strings.Join(open, "; "))
	}
	return nil
}

// differences lists the parts of Podman's description that we did not request.
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
	expect(slices.Equal(caps, agentCaps), "capabilities")
	expect(slices.Contains(h.SecurityOpt, "no-new-privileges") != c.stacked, "no_new_privs")
	expect(h.PidMode == "private" && h.IpcMode != "host" && h.UTSMode != "host", "namespaces")
	expect(h.UsernsMode == "private" && h.IDMappings != nil &&
		slices.Contains(h.IDMappings.UIDMap, c.userns.sign()) && slices.Contains(h.IDMappings.GIDMap, c.userns.sign()), "user namespace")
	tmpfs := []string{"/dev/shm", "/run", sandbox.SecretsDir, "/tmp"}
	if !c.userHome {
		tmpfs = append(tmpfs, sandbox.Home)
	}
	expect(slices.Equal(slices.Sorted(maps.Keys(h.Tmpfs)), tmpfs), "tmpfs")
	expect(len(h.Devices) == 0, "devices")
	expect(c.mountsAgree(data.Mounts), "mounts")
	expect(data.Config.User == "0:0", "user")
	expect(!c.gvisor || data.OCIRuntime == runscName, "runtime")
	return wrong
}

// mountsAgree reports whether the host's mounts are only the workspace, the agent, the empty resolv.conf and our hosts. Some
// versions of Podman also list the container's own terminals.
func (c container) mountsAgree(mounts []define.InspectMount) bool {
	want := map[string]func(define.InspectMount) bool{
		sandbox.WorkspaceDir: func(m define.InspectMount) bool { return m.Source == c.workspace && m.RW && closed(m) },
		resident.Path:        func(m define.InspectMount) bool { return m.Source == c.files.agent && !m.RW && closed(m) },
		"/etc/resolv.conf":   func(m define.InspectMount) bool { return m.Source == c.files.empty && !m.RW },
		"/etc/hosts":         func(m define.InspectMount) bool { return m.Source == c.files.hosts && !m.RW && closed(m) },
	}
	if c.userHome {
		want[sandbox.UserHome] = want[sandbox.WorkspaceDir]
		want["/etc/passwd"] = func(m define.InspectMount) bool { return m.Source == c.files.passwd && !m.RW && closed(m) }
		want["/etc/group"] = func(m define.InspectMount) bool { return m.Source == c.files.group && !m.RW && closed(m) }
	}
	for _, m := range mounts {
		if m.Destination == ptsDir && m.Source == "devpts" { // some versions report a bind whose source is not a path
			continue
		}
		agrees := want[m.Destination]
		if agrees == nil || !agrees(m) {
			return false
		}
		delete(want, m.Destination) // a second one is not expected
	}
	return len(want) == 0
}

func closed(m define.InspectMount) bool {
	return slices.Contains(m.Options, "nosuid") && slices.Contains(m.Options, "nodev")
}
