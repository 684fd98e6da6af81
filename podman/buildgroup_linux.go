package podman

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
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
	maxGroups   = 100             // that a step makes in its own
)

// buildGroup is the cgroup around the steps of one build. A step is root and may change the limits of its own group, or
// freeze it; this one is outside of its reach.
type buildGroup struct {
	name string
	held *os.File // its directory, locked while the build lives
}

// boundSteps bounds the steps of a build together, and returns a function for its end, which leaves none of their processes. Podman's API has no
// parameter for processes: root's steps get a cgroup below one of ours; rootless steps may have none, but the kernel holds them to a resource limit,
// from which it exempts real root. tooMany is called for a step that makes too many cgroups, if the kernel doesn't bound them. The steps of a
// service that isn't ours, which may be on another machine, have the API's limits alone.
func (b *Backend) boundSteps(e *engine, query url.Values, build sandbox.ImageBuild, tooMany func()) (end func(), err error) {
	if !e.alone {
		return func() {}, nil
	}
	if e.info.Host.Security.Rootless {
		query.Set("ulimits", fmt.Sprintf(`["nproc=%d:%d"]`, buildPids, buildPids))
		return func() {}, nil
	}
	g, err := newBuildGroup(build, b.log)
	if err != nil && build.Memory == 0 && build.CPUs == 0 { // the user's own Containerfile
		b.log.Warn("a build's steps have no maximum of processes", "error", err)
		return func() {}, nil
	}
	if err != nil {
		return nil, fail(sandbox.ErrUnavailable, err, "the steps of a build can't be bounded: wisbox can't set up a cgroup below %s; see `wisbox doctor`", groupRoot)
	}
	query.Set("cgroupparent", "/"+buildGroups+"/"+g.name+"/step") // the runtime creates it
	watched := g.watch(tooMany)
	return func() {
		watched()
		if err := g.remove(); err != nil {
			b.log.Warn("the processes of a build's step stay", "error", err)
		}
	}, nil
}

// newBuildGroup makes a group, and removes those of builds that were killed.
func newBuildGroup(build sandbox.ImageBuild, log *slog.Logger) (g *buildGroup, err error) {
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
	removeDeadGroups(all.Name(), log)
	g = &buildGroup{name: rand.Text()}
	defer func(made *buildGroup) {
		if err != nil {
			err = errors.Join(err, made.remove())
		}
	}(g)
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
	if err := g.bound(build); err != nil {
		return nil, err
	}
	return g, nil
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
	if unified { // a step may make groups in its own, each of which takes memory of the kernel, and a number that it has few of
		errs = append(errs, setNumber(at("", "cgroup.max.descendants"), maxGroups), setNumber(at("", "cgroup.max.depth"), maxGroups))
	}
	if quota := int64(build.CPUs * period); quota > 0 && unified {
		errs = append(errs, setText(at("cpu", "cpu.max"), fmt.Sprintf("%d %d", quota, period)))
	} else if quota > 0 {
		errs = append(errs, setNumber(at("cpu", "cpu.cfs_period_us"), period), setNumber(at("cpu", "cpu.cfs_quota_us"), quota))
	}
	return errors.Join(errs...)
}

// watch calls tooMany if a step makes too many groups, which version 1 doesn't bound, until done is called.
func (g *buildGroup) watch(tooMany func()) (done func()) {
	if unifiedCgroups() {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(groupsEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if g.made() > maxGroups {
				tooMany()
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

const groupsEvery = 200 * time.Millisecond

// made counts the groups in the group, up to somewhat more than their maximum.
func (g *buildGroup) made() (n int) {
	for _, top := range g.tops() {
		inTop := 0
		_ = filepath.WalkDir(top, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				inTop++
			}
			if inTop > maxGroups+10 {
				return fs.SkipAll
			}
			return nil
		})
		n = max(n, inTop)
	}
	return n
}

// removeDeadGroups removes the groups of builds whose wisbox was killed. The caller has locked their parent.
func removeDeadGroups(parent string, log *slog.Logger) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		held, err := lockedDir(filepath.Join(parent, e.Name()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			err = (&buildGroup{e.Name(), held}).remove()
		}
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) { // the next build tries again
			log.Warn("a group of a former build stays", "group", e.Name(), "error", err)
		}
	}
}

// ends bounds the attempts to end the processes of a group.
var ends = retry.Times{Count: 250, Pause: 20 * time.Millisecond}

var errLeft = errors.New("a group of the build can't be removed: processes are left in it, or the kernel refuses")

// remove ends all processes of the group, also frozen ones, and removes it with all groups that a step has made in it.
func (g *buildGroup) remove() error {
	if g.held != nil {
		defer g.held.Close()
	}
	return ends.Do(context.Background(), func(err error) bool { return errors.Is(err, errLeft) }, func() error {
		left := false
		for _, top := range g.tops() {
			_ = setText(filepath.Join(top, "pids.max"), "0") // no more of them
			left = g.sweep(top) || left
		}
		if left {
			return errLeft
		}
		return nil
	})
}

// tops returns the directories of the group, in all hierarchies.
func (g *buildGroup) tops() []string {
	found, _ := filepath.Glob(filepath.Join(groupRoot, "*", buildGroups, g.name))
	if own := filepath.Join(groupRoot, buildGroups, g.name); unifiedCgroups() {
		found = append(found, own)
	}
	return found
}

// sweep ends the processes below a directory and removes it. It reports whether it is still there. It walks with one open directory,
// since a step may have nested more of them than a path or the descriptors of a process can hold.
func (g *buildGroup) sweep(top string) (left bool) {
	at, err := os.Open(top)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer func() { _ = at.Close() }()
	names, below := []string{}, [][]string{g.enter(at)}
	for {
		last := len(below) - 1
		if n := len(below[last]); n > 0 {
			name := below[last][n-1]
			below[last] = below[last][:n-1]
			child, err := openDirAt(at, name)
			if err != nil {
				continue // it is gone, or stays in the way of its parent
			}
			_ = at.Close()
			at, names, below = child, append(names, name), append(below, g.enter(child))
			continue
		}
		if last == 0 {
			break
		}
		parent, err := openDirAt(at, "..")
		if err != nil {
			return true
		}
		_ = at.Close()
		at = parent
		_ = unix.Unlinkat(int(at.Fd()), names[last-1], unix.AT_REMOVEDIR) // not yet, while a killed process is in it
		names, below = names[:last-1], below[:last]
	}
	err = os.Remove(top)
	return err != nil && !errors.Is(err, fs.ErrNotExist)
}

// enter lets the processes in a directory run, kills them, and returns the directories in it.
func (g *buildGroup) enter(dir *os.File) (names []string) {
	_ = writeAt(dir, "freezer.state", "THAWED")
	_ = writeAt(dir, "cgroup.freeze", "0")
	_ = writeAt(dir, "cgroup.kill", "1")
	g.kill(dir)
	entries, _ := dir.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// kill kills the processes in a directory.
func (g *buildGroup) kill(dir *os.File) {
	fd, err := unix.Openat(int(dir.Fd()), "cgroup.procs", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	list := os.NewFile(uintptr(fd), "cgroup.procs")
	defer list.Close()
	text, _ := io.ReadAll(list)
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid == 0 {
			continue
		}
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
}

func openDirAt(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func writeAt(dir *os.File, name, text string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(text))
	return errors.Join(err, unix.Close(fd))
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
