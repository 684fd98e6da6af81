package podman

import (
	"context"
	"slices"
	"strconv"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// readBack compares the requested limits with those that the kernel reports inside the container. Podman's answer to
// the create request proves nothing: rootless on cgroup v1 it reports success although no limit holds.
func (s *Sandbox) readBack(ctx context.Context) ([]sandbox.LimitState, []string, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	hello := conn.Hello()
	if now, err := conn.Limits(ctx); err == nil {
		hello.Limits = now
	}
	tmp, _ := strconv.ParseInt(hello.Limits["tmp"], 10, 64)
	if s.b.isGVisor() {
		if hello, err = s.asOnHost(ctx, hello); err != nil {
			return nil, nil, err
		}
	}
	gaps, err := s.gaps(ctx, hello)
	limits := resident.Compare(s.limits(), hello, tmp)
	if !s.b.isGVisor() {
		limits = append(limits, watchers(hello))
	}
	return limits, gaps, err
}

func (s *Sandbox) gaps(ctx context.Context, hello agent.Hello) ([]string, error) {
	gaps := slices.Clone(hello.Gaps)
	if s.spec.Seccomp != "" {
		gap, err := CheckSeccomp(s.spec.Seccomp)
		if err != nil {
			return nil, err
		}
		if gap != "" {
			gaps = append(gaps, gap)
		}
	}
	if !hello.Seccomp {
		gaps = append(gaps, "no seccomp filter is in force")
	}
	if !s.b.isGVisor() {
		gaps = append(gaps, counterGaps(s.limits(), hello, s.hasOwnIDs(ctx))...)
	}
	if e, err := s.b.engine(ctx); err == nil && e.info.changesDevices() {
		gaps = append(gaps, e.info.runtimeName()+" may change the owner of device nodes of the host, which wisbox puts back")
	}
	return gaps, nil
}
