package podman

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// readBack compares the limits that were asked for with what the kernel says
// inside, now. Podman's answer to the create request proves nothing: rootless on
// cgroup v1 it is a success, and no limit holds.
func (s *Sandbox) readBack(ctx context.Context) ([]sandbox.LimitState, []string, error) {
	r, err := s.runner(ctx)
	if err != nil {
		return nil, nil, err
	}
	conn, ok := r.(*agent.Conn)
	if !ok {
		return unknownLimits(s.spec.Limits), plainGaps, nil
	}
	hello := conn.Hello()
	if s.b.opts.OneShot {
		conn.Close()
	} else if now, err := conn.Limits(ctx); err == nil {
		hello.Limits = now
	}
	if s.b.isGVisor() {
		if hello, err = s.asOnHost(ctx, hello); err != nil {
			return nil, nil, err
		}
	}
	gaps := slices.Clone(hello.Gaps)
	if s.spec.Seccomp != "" {
		gap, err := CheckSeccomp(s.spec.Seccomp)
		if err != nil {
			return nil, nil, err
		}
		if gap != "" {
			gaps = append(gaps, gap)
		}
	}
	if !hello.Seccomp {
		gaps = append(gaps, "no seccomp filter is in force")
	}
	return compare(s.spec.Limits, hello, s.tmpSize(ctx)), gaps, nil
}

// compare is what holds of l, by what the agent read.
func compare(l sandbox.Limits, h agent.Hello, tmp int64) []sandbox.LimitState {
	out := l.Asked(byWatcher)
	judge := func(name string, holds bool, by string) {
		if !holds {
			by = "nothing: the host did not take it over into the " + strings.Fields(by)[0]
		}
		i := slices.IndexFunc(out, func(s sandbox.LimitState) bool { return s.Name == name })
		out[i].Enforced, out[i].By = holds, by
	}
	rlimit := func(name string, want int64) {
		got := h.Rlimits[name][1]
		judge(name, got > 0 && got <= want, "rlimit")
	}
	cgroup := fmt.Sprintf("cgroup v%d", h.CgroupVersion)
	judge("cpus", cpusHold(l.CPUs, h.Limits), cgroup)
	judge("memory", atMost(h.Limits["memory"], l.Memory), cgroup+swapNote(l.Memory, h))
	judge("pids", atMost(h.Limits["pids"], l.PIDs), cgroup)
	judge("tmp", tmp > 0 && tmp <= l.Tmp+1<<16, "tmpfs size")
	rlimit("nofile", l.NoFile)
	rlimit("fsize", l.FileSize)
	return out
}

// byWatcher is why a limit isn't ours: who keeps the workspace reports it, and
// strict mode leaves it to them.
const byWatcher = "not by podman: by who watches the workspace"

// atMost: the kernel's number is there and not above want.
func atMost(text string, want int64) bool {
	got, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return err == nil && got > 0 && got <= want
}

// cpusHold reads "QUOTA PERIOD" (v2) or the two values of v1.
func cpusHold(want float64, limits map[string]string) bool {
	fields := strings.Fields(limits["cpu"] + " " + limits["cpu_period"])
	if len(fields) < 2 {
		return false
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	return err1 == nil && err2 == nil && quota > 0 && period > 0 && quota/period <= want+0.001
}

// swapNote says so where the kernel doesn't bound swap.
func swapNote(memory int64, h agent.Hello) string {
	swap := strings.TrimSpace(h.Limits["swap"])
	bounded := swap == "0" || h.CgroupVersion == 1 && atMost(swap, memory)
	if bounded {
		return ""
	}
	return ", swap not bounded by this kernel"
}

// unknownLimits is what can be said without an agent.
func unknownLimits(l sandbox.Limits) []sandbox.LimitState {
	out := l.Asked("not checked: the image has no python3")
	for i := range out {
		if out[i].Name == "disk" || out[i].Name == "inodes" {
			out[i].By = byWatcher
		}
	}
	return out
}
