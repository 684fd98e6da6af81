package beside

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/agent/resident"
	"github.com/wisbox/wisbox/sandbox"
)

// Info implements [sandbox.Sandbox].
func (s *Sandbox) Info(ctx context.Context) (sandbox.Info, error) {
	info := s.b.describe(s.rec)
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return info, err
	}
	hello := conn.Hello()
	for _, name := range slices.Sorted(maps.Keys(hello.Has)) {
		if !hello.Has[name] {
			info.Lacks = append(info.Lacks, name)
		}
	}
	info.Limits, info.Gaps = s.readBack(ctx, conn)
	return info, nil
}

// byNode explains why the number of processes isn't bounded per session.
const byNode = "nothing in the Pod: the kubelet's podPidsLimit bounds the whole Pod, if it is set"

// readBack compares the requested limits with those that the agent reads now.
func (s *Sandbox) readBack(ctx context.Context, conn *agent.Conn) ([]sandbox.LimitState, []string) {
	hello := conn.Hello()
	if now, err := conn.Limits(ctx); err == nil {
		hello.Limits = now
	}
	tmp, _ := strconv.ParseInt(hello.Limits["tmp"], 10, 64)
	limits := resident.Compare(s.spec.Limits, hello, tmp)
	for i, l := range limits {
		if l.Name == "pids" && !l.Enforced {
			limits[i].By = byNode
		}
	}
	return limits, append(gaps(hello), s.b.diskGaps()...)
}

// gaps returns the guarantees that a Pod doesn't give.
func gaps(hello agent.Hello) []string {
	out := slices.Clone(hello.Gaps)
	if others := slices.DeleteFunc(slices.Clone(hello.Interfaces), func(name string) bool { return name == "lo" }); len(others) > 0 {
		out = append(out, fmt.Sprintf("the Pod has a network (%s): programs reach what its network policies allow; use a runtime class whose Pods have none", strings.Join(others, ", ")))
	} else if len(hello.Interfaces) == 0 {
		out = append(out, "whether the Pod has a network is unknown")
	}
	if hello.Limits["oom_group"] == "1" {
		out = append(out, "at the memory limit the kernel ends all programs at once, and not one of them; set singleProcessOOMKill in the kubelet's configuration")
	}
	if !hello.Seccomp {
		out = append(out, "no seccomp filter is in force")
	}
	return append(out,
		"files that are removed but still open aren't counted for the disk limit: nothing but the node's own eviction bounds them",
		"the seccomp filter is the one that the Pod was given, which may allow more than wisbox's own",
		"/proc and /sys show more of the node's kernel than in a container of wisbox's own",
		"other Pods of the node whose programs have the same user ID share its pipes, inotify watches, signals and message queues",
	)
}

// strict returns an error for limits that aren't enforced, except those that the workspace's
// watcher reports.
func (s *Sandbox) strict(ctx context.Context) error {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return err
	}
	limits, open := s.readBack(ctx, conn)
	for _, l := range limits {
		if !l.Enforced && l.By != resident.ByWatcher {
			open = append(open, l.Name+": "+l.By)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return unavailable(nil, "strict mode: this Pod doesn't enforce everything requested (%s)", strings.Join(open, "; "))
}
