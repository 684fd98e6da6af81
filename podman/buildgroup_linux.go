package podman

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
	"github.com/wisbox/wisbox/sandbox"
)

// buildPids is the maximum number of processes of RUN steps: of all builds of the machine together, or rootless those
// of this user's containers that have the same user ID. It is 4 times that of a session, for compilers.
const buildPids = 1024

const (
	groupRoot   = "/sys/fs/cgroup"
	buildGroups = "wisbox-builds" // the cgroup of all RUN steps; it stays, empty
)

// buildGroup is the cgroup around the steps of one build. A step is root and may change the limits of its own group, or
// freeze it; this one is outside of its reach.
type buildGroup struct {
	name string
	held *os.File // its directory, locked while the build lives
}

// boundSteps bounds the steps of a build together, and returns a function for its end, which leaves none of their processes. Podman's API has no
// parameter for processes: root's steps get a cgroup below one of ours; rootless steps may have none, but the kernel holds them to a resource limit,
// from which it exempts real root. The steps of a service that isn't ours, which may be on another machine, have the API's limits alone.
func (b *Backend) boundSteps(e *engine, query url.Values, build sandbox.ImageBuild) (end func(), err error) {
	if !e.alone {
		return func() {}, nil
	}
	if e.info.Host.Security.Rootless {
		query.Set("ulimits", fmt.Sprintf(`["nproc=%d:%d"]`, buildPids, buildPids))
		return func() {}, nil
	}
	g, err := newBuildGroup(build)
	if err != nil && build.Memory == 0 && build.CPUs == 0 { // the user's own Containerfile
		b.log.Warn("a build's steps have no maximum of processes", "error", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fail(sandbox.ErrUnavailable, err, "the steps of a build can't be bounded: wisbox can't set up a cgroup below %s; see `wisbox doctor`", groupRoot)
	}
	query.Set("cgroupparent", "/"+buildGroups+"/"+g.name+"/step") // the runtime creates it
	return func() {
		if err := g.remove(); err != nil {
			b.log.Warn("the processes of a build's step stay", "error", err)
		}
	}, nil
}

// newBuildGroup makes a group, and removes those of builds that were killed.
func newBuildGroup(build sandbox.ImageBuild) (g *buildGroup, err error) {
	hierarchies := []string{"."}
	if !unifiedCgroups() {
		hierarchies = []string{"pids", "memory", "cpu"}
	}
	for _, h := range hierarchies {
		if err := os.Mkdir(filepath.Join(groupRoot, h, buildGroups), 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // as all groups
			return nil, err
		}
		_ = setText(filepath.Join(groupRoot, h, buildGroups, "memory.use_hierarchy"), "1") // old kernels
		for _, controller := range []string{"+pids", "+memory", "+cpu"} {                  // version 2; the limits show whether it worked
			_ = setText(filepath.Join(groupRoot, "cgroup.subtree_control"), controller)
			_ = setText(filepath.Join(groupRoot, buildGroups, "cgroup.subtree_control"), controller)
		}
	}
	all, err := lockedDir(filepath.Join(groupRoot, hierarchies[0], buildGroups), unix.LOCK_EX)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	removeDeadGroups(all.Name())
	g = &buildGroup{name: rand.Text()}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.remove())
		}
	}()
	for _, h := range hierarchies {
		if err := os.Mkdir(filepath.Join(groupRoot, h, buildGroups, g.name), 0o755); err != nil { //nolint:gosec // as all groups
			return nil, err
		}
	}
	if g.held, err = lockedDir(filepath.Join(all.Name(), g.name), unix.LOCK_EX); err != nil {
		return nil, err
	}
	if err := setNumber(filepath.Join(all.Name(), "pids.max"), buildPids); err != nil {
		return nil, err
	}
	return g, g.bound(build)
}

// bound sets the limits of the group, which are those of a step.
func (g *buildGroup) bound(build sandbox.ImageBuild) error {
	unified := unifiedCgroups()
	at := func(hierarchy, file string) string {
		if unified {
			hierarchy = "."
		}
		return filepath.Join(groupRoot, hierarchy, buildGroups, g.name, file)
	}
	var errs []error
	if build.Memory > 0 {
		limit, swap, most := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", build.Memory
		if unified {
			limit, swap, most = "memory.max", "memory.swap.max", 0
		}
		errs = append(errs, setNumber(at("memory", limit), build.Memory), ignoreMissing(setNumber(at("memory", swap), most))) // some kernels don't count swap
	}
	if quota := int64(build.CPUs * period); quota > 0 && unified {
		errs = append(errs, setText(at("cpu", "cpu.max"), fmt.Sprintf("%d %d", quota, period)))
	} else if quota > 0 {
		errs = append(errs, setNumber(at("cpu", "cpu.cfs_period_us"), period), setNumber(at("cpu", "cpu.cfs_quota_us"), quota))
	}
	return errors.Join(errs...)
}

// removeDeadGroups removes the groups of builds whose wisbox was killed. The caller has locked their parent.
func removeDeadGroups(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		held, err := lockedDir(filepath.Join(parent, e.Name()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			_ = (&buildGroup{e.Name(), held}).remove() // the next build tries again
		}
	}
}

// ends bounds the attempts to end the processes of a group.
var ends = retry.Times{Count: 250, Pause: 20 * time.Millisecond}

var errLeft = errors.New("processes are left")

// remove ends all processes of the group, also frozen ones, and removes it.
func (g *buildGroup) remove() error {
	if g.held != nil {
		defer g.held.Close()
	}
	err := ends.Do(context.Background(), func(err error) bool { return errors.Is(err, errLeft) }, func() error {
		dirs := g.dirs()
		for _, dir := range dirs {
			_ = setText(filepath.Join(dir, "freezer.state"), "THAWED")
			_ = setText(filepath.Join(dir, "cgroup.freeze"), "0")
		}
		left := false
		for _, dir := range dirs {
			left = g.kill(dir) || left
		}
		if left {
			return errLeft
		}
		return nil
	})
	dirs := g.dirs()
	slices.Reverse(dirs) // the deepest first
	for _, dir := range dirs {
		err = errors.Join(err, ignoreMissing(os.Remove(dir)))
	}
	return err
}

// dirs returns the directories of the group and of those below it, in all hierarchies, parents first.
func (g *buildGroup) dirs() (all []string) {
	tops, _ := filepath.Glob(filepath.Join(groupRoot, "*", buildGroups, g.name))
	for _, top := range append(tops, filepath.Join(groupRoot, buildGroups, g.name)) {
		_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return nil // a group that is gone
		})
	}
	return all
}

// kill kills the processes in a directory and reports whether there were any.
func (g *buildGroup) kill(dir string) (any bool) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid == 0 {
			continue
		}
		any = true
		held, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)) // the number may be another process's by now
		if err == nil && strings.Contains(string(groups), "/"+buildGroups+"/"+g.name) {
			_ = held.Kill()
		}
		_ = held.Release()
	}
	return any
}

// lockedDir opens a directory and locks it.
func lockedDir(path string, how int) (*os.File, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := retry.Interrupted(func() (int, error) { return 0, unix.Flock(int(dir.Fd()), how) }); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
