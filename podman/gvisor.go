package podman

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// runscName is the name of gVisor's runtime in every configuration, whatever its file's name: a container
// keeps the name of the runtime that created it.
const runscName = "runsc"

var (
	errNoRunsc      = errors.New("gVisor's runtime runsc was not found")
	errOtherRuntime = errors.New("its runtime is not gVisor's runsc")
)

const howToGVisor = "there is no podman service with gVisor; tried %s; install runsc (https://gvisor.dev/docs/user_guide/install) on PATH, " +
	"or name it in WISBOX_RUNSC, or leave out isolation gvisor"

// gvisorGaps are the differences that a session reports by itself; docs/gvisor.md
// has them all.
var gvisorGaps = []string{
	"gVisor: memory or processes over the limit may end the whole sandbox; the call is then sandbox_lost, and the next one works",
}

// level returns the backend for sandboxes of an isolation level. The service, not the request,
// determines a container's runtime, so gVisor has its own private service over the same store.
func (b *Backend) level(isolation sandbox.Isolation) *Backend {
	if isolation == sandbox.IsolationGVisor && b.gvisor != nil {
		return b.gvisor()
	}
	return b
}

func (b *Backend) isGVisor() bool { return b.isolation == sandbox.IsolationGVisor }

// suits refuses a service that would create weaker sandboxes than requested.
func (b *Backend) suits(e *engine) error {
	if !b.isGVisor() || e.info.Host.OCIRuntime.Name == runscName {
		return nil
	}
	e.close()
	return errOtherRuntime
}

// runscFlags are Podman's, for gVisor's runtime: a network of a loopback that is
// up and nothing else; and rootless it can't write the groups of cgroup v1 and
// wouldn't start.
func runscFlags() []string {
	flags := []string{"--runtime-flag", "network=none"}
	if os.Getuid() != 0 && !unifiedCgroups() {
		flags = append(flags, "--runtime-flag", "ignore-cgroups")
	}
	return flags
}

func unifiedCgroups() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// atOnce returns how many programs may run at once under a limit of processes. gVisor's own threads count
// toward it, and beyond the limit the host kills gVisor instead of a program.
func atOnce(pids int64) int { return max(1, int((pids-gVisorThreads)/threadsPerProgram)) }

const (
	gVisorThreads     = 48 // of an empty sandbox: 38 were seen
	threadsPerProgram = 8  // a small program's, its monitor's, and gVisor's for both: 5 were seen
)

// sentry returns the process on this host that is gVisor's kernel for the sandbox.
func (s *Sandbox) sentry(ctx context.Context) (int, error) {
	data, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return 0, explain(ctx, "look at the container", err)
	}
	return data.State.Pid, nil
}

// sentryFiltered reports whether gVisor's own process has a seccomp filter. gVisor loads no profile for
// programs, and only gVisor itself makes calls to the host's kernel.
func (s *Sandbox) sentryFiltered(ctx context.Context) (bool, error) {
	pid, err := s.sentry(ctx)
	if err != nil {
		return false, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false, fail(sandbox.ErrUnavailable, err, "gVisor's process can't be looked at; podman's service must run on this machine")
	}
	return strings.Contains(string(status), "\nSeccomp:\t2\n"), nil
}

// asOnHost replaces the limits in an agent's hello by those of the host's groups, since the agent sees
// groups that gVisor made up.
func (s *Sandbox) asOnHost(ctx context.Context, hello agent.Hello) (agent.Hello, error) {
	pid, err := s.sentry(ctx)
	if err != nil {
		return hello, err
	}
	hello.Limits, hello.CgroupVersion = hostLimits("/", pid)
	hello.Seccomp, err = s.sentryFiltered(ctx)
	return hello, err
}

// limitFiles are the agent's names of limits, and where version 1 and 2 keep them.
var limitFiles = []struct{ name, controller, v1, v2 string }{
	{"memory", "memory", "memory.limit_in_bytes", "memory.max"},
	{"swap", "memory", "memory.memsw.limit_in_bytes", "memory.swap.max"},
	{"pids", "pids", "pids.max", "pids.max"},
	{"cpu", "cpu", "cpu.cfs_quota_us", "cpu.max"},
	{"cpu_period", "cpu", "cpu.cfs_period_us", ""},
}

// hostLimits reads the limits of a process's groups, and their version. root is
// "/" but in tests.
func hostLimits(root string, pid int) (map[string]string, int) {
	groups := groupsOf(root, pid)
	mount, limits := filepath.Join(root, "sys/fs/cgroup"), map[string]string{}
	_, v1 := groups["memory"]
	for _, f := range limitFiles {
		path := filepath.Join(mount, groups[""], f.v2)
		if v1 {
			path = filepath.Join(mount, f.controller, groups[f.controller], f.v1)
		}
		if data, err := os.ReadFile(path); err == nil {
			limits[f.name] = strings.TrimSpace(string(data))
		}
	}
	if v1 {
		return limits, 1
	}
	return limits, 2
}

// groupsOf returns a process's groups by controller; version 2 has one, called "".
func groupsOf(root string, pid int) map[string]string {
	data, _ := os.ReadFile(filepath.Join(root, fmt.Sprintf("proc/%d/cgroup", pid)))
	groups := map[string]string{}
	for line := range strings.Lines(string(data)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		for c := range strings.SplitSeq(controllers, ",") {
			groups[c] = path
		}
	}
	return groups
}
