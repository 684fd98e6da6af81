package resident

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wisbox/wisbox/agent"
	"github.com/wisbox/wisbox/sandbox"
)

// ByWatcher is why a limit isn't the sandbox's: who keeps the workspace reports it,
// and strict mode leaves it to them.
const ByWatcher = "not by the sandbox: by the watcher of the workspace"

// Compare returns what holds of l by what an agent read: what a container engine answers
// to a create request proves nothing. tmp is the size of /tmp, 0 when nobody says.
func Compare(l sandbox.Limits, h agent.Hello, tmp int64) []sandbox.LimitState {
	out := l.Asked(ByWatcher)
	judge := func(name string, holds bool, by string) {
		if !holds {
			by = "nothing: the host did not take it over into the " + strings.Fields(by)[0]
		}
		i := slices.IndexFunc(out, func(s sandbox.LimitState) bool { return s.Name == name })
		out[i].Enforced, out[i].By = holds, by
	}
	rlimit := func(name string, want int64, lower string) {
		got := h.Rlimits[name][1]
		judge(name, got > 0 && got <= want, "rlimit")
		if i := slices.IndexFunc(out, func(s sandbox.LimitState) bool { return s.Name == name }); got > 0 && got < want {
			out[i].Holds = strconv.FormatInt(got, 10)
			out[i].By += " of " + out[i].Holds + ": " + lower
		}
	}
	cgroup := fmt.Sprintf("cgroup v%d", h.CgroupVersion)
	judge("cpus", cpusHold(l.CPUs, h.Limits), cgroup)
	judge("memory", atMost(h.Limits["memory"], l.Memory), cgroup+swapNote(l.Memory, h))
	judge("pids", atMost(h.Limits["pids"], l.PIDs), cgroup)
	judge("tmp", tmp > 0 && tmp <= l.Tmp+1<<16, "tmpfs size")
	rlimit("nofile", l.NoFile, "the host's hard limit, or the share of each of --pids processes of the host's fs.file-max")
	rlimit("fsize", l.FileSize, "the host's hard limit")
	return out
}

// IsSize reports whether the limits that an agent read are those of l, as far as the kernel bounds anything.
func IsSize(l sandbox.Limits, read map[string]string) bool {
	const page = 4 << 10 // the kernel rounds memory to pages
	is := func(text string, want, unit int64) bool {
		got, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return err != nil || got <= 0 || got/unit == want/unit
	}
	if quota, period, ok := cpuShare(read); ok && math.Abs(quota/period-l.CPUs) > 0.001 {
		return false
	}
	return is(read["memory"], l.Memory, page) && is(read["pids"], l.PIDs, 1)
}

// atMost: the kernel's number is there and not above want.
func atMost(text string, want int64) bool {
	got, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return err == nil && got > 0 && got <= want
}

func cpusHold(want float64, limits map[string]string) bool {
	quota, period, ok := cpuShare(limits)
	return ok && quota/period <= want+0.001
}

// cpuShare reads "QUOTA PERIOD" (v2) or the two values of v1.
func cpuShare(limits map[string]string) (quota, period float64, ok bool) {
	fields := strings.Fields(limits["cpu"] + " " + limits["cpu_period"])
	if len(fields) < 2 {
		return 0, 0, false
	}
	quota, err1 := strconv.ParseFloat(fields[0], 64)
	period, err2 := strconv.ParseFloat(fields[1], 64)
	return quota, period, err1 == nil && err2 == nil && quota > 0 && period > 0
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
