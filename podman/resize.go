package podman

import (
	"context"
	"math"
	"net/http"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Resizer = (*Sandbox)(nil)

// limits returns the sandbox's limits, which Resize may have changed.
func (s *Sandbox) limits() sandbox.Limits {
	if changed := s.resized.Load(); changed != nil {
		return *changed
	}
	return s.spec.Limits
}

// Resize implements [sandbox.Resizer]. A rootless service on cgroup v1 enforces none of these limits, so there is nothing
// to change.
func (s *Sandbox) Resize(ctx context.Context, l sandbox.Limits) error {
	if s.b.isGVisor() {
		return fail(sandbox.ErrUnsupported, nil, "gVisor can't change the limits of a running container")
	}
	e, err := s.b.engine(ctx)
	if err != nil {
		return err
	}
	if !e.info.Host.Security.Rootless || e.info.Host.CgroupsVersion != "v1" {
		err := s.b.do(ctx, request{method: http.MethodPost, path: containerPath(s.name, "/update"), body: cgroupLimits(l), doing: "change the container's limits"})
		if err != nil {
			return explain(ctx, "change the container's limits", err)
		}
	}
	s.resized.Store(&l)
	if data, err := s.b.inspect(ctx, s.name); err == nil {
		s.bound(ctx, data) // a share of the memory
	}
	return nil
}

// cgroupLimits returns the limits that a container's cgroup has.
func cgroupLimits(l sandbox.Limits) *specs.LinuxResources {
	return &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Period: new(uint64(cpuPeriod)), Quota: new(int64(math.Round(l.CPUs * cpuPeriod)))},
		Memory: &specs.LinuxMemory{Limit: new(l.Memory), Swap: new(l.Memory)},
		Pids:   &specs.LinuxPids{Limit: l.PIDs},
	}
}

// keepSize gives a container that another process made the limits of the spec: whoever changed them may have been killed
// before the record or the container had them, and Podman 4 forgets changed limits when it restarts a container.
func (s *Sandbox) keepSize(ctx context.Context) {
	if s.b.isGVisor() || s.hasSize(ctx) {
		return
	}
	if err := s.Resize(ctx, s.spec.Limits); err != nil {
		s.b.log.Warn("the container has other limits than its session", "sandbox", s.spec.ID, "error", err)
	}
}

// hasSize reports whether the container's cgroup has the limits of the spec. It asks the agent: Podman 4 answers with the
// limits of the creation, whatever has changed them since.
func (s *Sandbox) hasSize(ctx context.Context) bool {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return true
	}
	limits, err := conn.Limits(ctx)
	return err != nil || resident.IsSize(s.spec.Limits, limits)
}
