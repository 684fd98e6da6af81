package podman

import (
	"path/filepath"
	"runtime"
	"strings"
)

// groupParent is the control group above our containers, if Podman makes such groups itself and as root. Podman's
// default, libpod_parent, has the weight of one process of the host, divided among the processors. So a few busy
// processes of the host slow down all sessions, and some sessions by half a second a call (docs/adr/0032).
const groupParent = "/wisbox"

// groupParent returns the group to ask for. It is Podman's default if systemd makes the groups, which puts containers in a
// slice of the same weight as its other slices; and without rights, because weights can't be set then.
func (i *hostInfo) groupParent() string {
	if i.Host.CgroupManager != "cgroupfs" || i.Host.Security.Rootless {
		return ""
	}
	return groupParent
}

// weigh gives groupParent the weight of one process on each processor, if the container's process is below it. All
// containers share the group; setting it again changes nothing. The numbers are the kernel's defaults and
// maximums. root is "/" except in tests.
func weigh(root string, pid int) error {
	groups := groupsOf(root, pid)
	group, v1 := groups["cpu"]
	file, weight := filepath.Join("cpu", groupParent, "cpu.shares"), min(1024*runtime.NumCPU(), 1<<18)
	if !v1 {
		group = groups[""]
		file, weight = filepath.Join(groupParent, "cpu.weight"), min(100*runtime.NumCPU(), 10_000)
	}
	if !strings.HasPrefix(group, groupParent+"/") {
		return nil
	}
	return setNumber(filepath.Join(root, "sys/fs/cgroup", file), int64(weight))
}
