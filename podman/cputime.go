package podman

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.CPUTimer = (*Sandbox)(nil)

// CPUTime reads the kernel's counter of the container's group. The container must have its own group,
// which it doesn't have rootless on cgroup v1.
func (s *Sandbox) CPUTime(ctx context.Context) (time.Duration, error) {
	data, err := s.b.inspect(ctx, s.name)
	if err != nil {
		return 0, explain(ctx, "look at the container", err)
	}
	used, err := cpuTime("/", data.State.Pid, data.ID)
	if err != nil {
		return 0, fail(sandbox.ErrUnsupported, err, "the container's processor time isn't counted here")
	}
	return used, nil
}

var errNoOwnGroup = errors.New("the container has no group of its own")

// cpuTime returns the processor time of the group that is named after the container, including the groups
// below it. root is "/" except in tests.
func cpuTime(root string, pid int, container string) (time.Duration, error) {
	groups, mount := groupsOf(root, pid), filepath.Join(root, "sys/fs/cgroup")
	path, v1 := groups["cpuacct"]
	if !v1 {
		path = groups[""]
	}
	above, below, own := strings.Cut(path, container)
	if !own || container == "" {
		return 0, errNoOwnGroup
	}
	suffix, _, _ := strings.Cut(below, "/") // as in libpod-ID.scope/container
	group := above + container + suffix
	if v1 {
		return readNumber(filepath.Join(mount, "cpuacct", group, "cpuacct.usage"), "", time.Nanosecond)
	}
	return readNumber(filepath.Join(mount, group, "cpu.stat"), "usage_usec ", time.Microsecond)
}

// readNumber returns the number after prefix in a file, times unit.
func readNumber(path, prefix string, unit time.Duration) (time.Duration, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, prefix); found {
			n, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Duration(n) * unit, err
		}
	}
	return 0, errNoOwnGroup
}
