package podman

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/sandbox"
)

// The kernel counts some resources for the whole machine, or for the user that created a container's
// user namespace, who is the same for all containers: a sandbox that takes all of a resource leaves none
// to other sandboxes and to the host's own root. Each such counter has a bound here, which is small
// compared with the machine's usual limit; SECURITY.md has the list.
const (
	maxSignals   = 1024   // RLIMIT_SIGPENDING: queued signals and POSIX timers
	maxQueues    = 98_304 // RLIMIT_MSGQUEUE, bytes: one queue of the default size, and small ones
	maxPTYs      = 64
	maxInstances = 128    // of inotify, and at most an eighth of the host's
	maxWatches   = 65_536 // likewise
	leastFiles   = 1024   // that each process may open however small the machine's table is
	perHost      = 8      // the part of a counter of the host's that one sandbox gets
	leastTCP     = 8 << 20

	ptsDir   = "/dev/pts"
	userDir  = "/proc/sys/user"
	tcpLimit = "memory.kmem.tcp.limit_in_bytes"

	perContainer = 4 // namespaces of a kind, while its runtime makes it
)

var boundTimeout = patience.For(5 * time.Second)

// userCounters are bounded in the sandbox's user namespace, by a process with rights there,
// which programs don't have. They never need a namespace: containers is how many more may be made
// of those that a container has of its own.
func userCounters(containers int64) map[string]int64 {
	out := map[string]int64{
		"max_inotify_instances": hostShare("max_inotify_instances", maxInstances),
		"max_inotify_watches":   hostShare("max_inotify_watches", maxWatches),
	}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"} {
		out["max_"+kind+"_namespaces"] = 0
	}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "pid", "uts"} {
		out["max_"+kind+"_namespaces"] = containers * perContainer
	}
	return out
}

// watchers returns the limit of file watchers: each program that watches files needs an inotify instance.
func watchers(h agent.Hello) sandbox.LimitState {
	const counter = "max_inotify_instances"
	out := sandbox.LimitState{Name: "watchers", Asked: strconv.Itoa(maxInstances), By: "nothing: the host did not take it over"}
	got, err := strconv.ParseInt(h.Limits["user."+counter], 10, 64)
	if err != nil || got > maxInstances {
		return out
	}
	out.Enforced, out.By = true, "user."+counter
	if got < maxInstances {
		out.Holds = strconv.FormatInt(got, 10)
		out.By += " of " + out.Holds + fmt.Sprintf(": one of %d parts of the host's fs.inotify.max_user_instances", perHost)
	}
	return out
}

// hostShare returns a part of the host's limit, but at most most.
func hostShare(name string, most int64) int64 {
	all, ok := readLimit(filepath.Join(userDir, name))
	if !ok {
		return most
	}
	return min(most, max(all/perHost, 1))
}

func readLimit(path string) (int64, bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return n, err == nil
}

// fileTable returns the number of files that all users except root can have open on this machine.
func fileTable() int64 {
	if n, ok := readLimit("/proc/sys/fs/file-max"); ok {
		return n
	}
	return math.MaxInt64
}

// noFile returns the limit of open files of a process, so that all processes of a sandbox together have
// at most a quarter of the machine's table, which counts the open files of all users.
func (c container) noFile() int64 {
	if c.fileTable == 0 || c.gvisor {
		return c.limits.NoFile
	}
	return min(c.limits.NoFile, max(leastFiles, c.fileTable/4/max(c.limits.PIDs, 1)))
}

// bound sets what can only be set once the container runs, before any program does.
// readBack finds the limits that couldn't be set, so errors are only logged.
func (s *Sandbox) bound(ctx context.Context, data *define.InspectContainerData) {
	e, err := s.b.engine(ctx)
	if err == nil && e.conn.URI.Scheme != "unix" {
		err = errors.New("the service may be on another machine")
	}
	if err == nil {
		err = weigh("/", data.State.Pid)
		if !s.b.isGVisor() { // whose programs reach none of the host's counters
			err = errors.Join(err, boundUser(ctx, data.State.Pid, 0), boundTCP("/", data, tcpBytes(s.limits())))
		}
	}
	if err != nil {
		s.b.log.Warn("the group's weight or bounds of shared counters are not set", "sandbox", s.spec.ID, "error", err)
	}
}

// boundUser writes userCounters in the user namespace of a process. It uses util-linux, since a process
// with threads, such as one of Go, can't enter a user namespace.
func boundUser(ctx context.Context, pid int, containers int64) error {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := isOther(ns); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, boundTimeout)
	defer cancel()
	var script strings.Builder
	counters := userCounters(containers)
	for name, most := range counters {
		fmt.Fprintf(&script, "[ ! -e %s/%s ] || echo %d >%[1]s/%[2]s\n", userDir, name, most)
	}
	cmd := exec.CommandContext(ctx, "nsenter", "--user=/proc/self/fd/3", "--", "sh", "-c", script.String())
	cmd.ExtraFiles, cmd.Dir = []*os.File{ns}, "/"
	cmd.Env = []string{"PATH=" + fixedEnv["PATH"]}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nsenter: %w: %s", err, out[:min(len(out), 200)])
	}
	return nil
}

// isOther checks that a user namespace isn't our own, in which the bounds would apply to the host.
func isOther(ns *os.File) error {
	own, err := os.Stat("/proc/self/ns/user")
	if err != nil {
		return err
	}
	its, err := ns.Stat()
	if err != nil {
		return err
	}
	if os.SameFile(own, its) {
		return errors.New("the container's process is in our user namespace")
	}
	return nil
}

func tcpBytes(l sandbox.Limits) int64 { return max(l.Memory/8, leastTCP) }

// boundTCP bounds the memory of sockets on cgroup version 1, which doesn't count it toward the memory
// limit, by an additional share. Version 2 counts it.
func boundTCP(root string, data *define.InspectContainerData, limit int64) error {
	group, v1 := groupsOf(root, data.State.Pid)["memory"]
	if !v1 || !strings.Contains(group, data.ID) {
		return nil // of rootless containers there is none
	}
	return setNumber(filepath.Join(root, "sys/fs/cgroup/memory", group, tcpLimit), limit)
}

// setNumber writes a number to a file of the kernel's, which must exist.
func setNumber(path string, n int64) error { return setText(path, strconv.FormatInt(n, 10)) }

// setText writes to a file of the kernel's, which must exist.
func setText(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// counterGaps returns the counters that a session could exhaust for others, according to the agent's
// readings.
func counterGaps(l sandbox.Limits, h agent.Hello, ownIDs bool) []string {
	var open []string
	expect := func(ok bool, what string) {
		if !ok {
			open = append(open, what)
		}
	}
	within := func(name string, most int64) bool {
		got, err := strconv.ParseInt(h.Limits[name], 10, 64)
		return err == nil && got <= most
	}
	rlimit := func(name string, most int64) bool { return h.Rlimits[name][1] >= 0 && h.Rlimits[name][1] <= most }
	for name, most := range userCounters(0) {
		if most > 0 { // the filter denies namespaces already
			expect(within("user."+name, most), strings.ReplaceAll(strings.TrimPrefix(name, "max_"), "_", " "))
		}
	}
	slices.Sort(open)
	expect(ownIDs, "pipes, of descriptors that are sent and of files that are polled (they are counted by user id)")
	expect(within("ptys", maxPTYs), "terminals")
	expect(rlimit("sigpending", maxSignals), "pending signals")
	expect(rlimit("msgqueue", maxQueues), "message queues")
	var gaps []string
	if len(open) > 0 {
		gaps = append(gaps, "other sessions share what the kernel has of "+strings.Join(open, ", ")+": it isn't bounded here")
	}
	if h.CgroupVersion == 1 && !within("tcp", tcpBytes(l)) {
		gaps = append(gaps, "what waits unread in sockets doesn't count to the memory limit here")
	}
	return gaps
}
