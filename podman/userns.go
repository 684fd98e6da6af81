package podman

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"go.podman.io/storage/pkg/idtools"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/sandbox"
)

// Each rootful container has a range of IDs of its own, for the kernel counts pipes,
// descriptors that are sent and more by ID. That costs nothing where ids can be
// shifted (see CheapRanges); elsewhere it costs a mapped layer, and containers of
// one host user share one range unless they ask, so that Podman makes the layer
// once. The ranges lie above what systemd and the usual /etc/subuid give away
// (524288 to 1879048191) and below 2^31: 4,096 slots, the shared one by our own uid,
// then the next that /etc/subuid and /etc/subgid don't name.
const (
	rangeSize  = 65_536
	rangeStart = 0x70000000
	rangeSlots = 4096
)

// usernsMode is how container IDs become host IDs.
type usernsMode struct {
	keepID bool // rootless: inside 1000 is the user who runs Podman
	base   int  // rootful: inside 0 is base
}

func (b *Backend) userns(e *engine, spec sandbox.Spec) usernsMode {
	mode := modeFor(e.info.Host.Security.Rootless)
	if base := spec.Owner.UID - sandbox.UserID; !mode.keepID && isSlot(base) {
		mode.base = base
	}
	return mode
}

// hasOwnIDs reports whether no other sandbox of this host user need have the same.
func (s *Sandbox) hasOwnIDs(ctx context.Context) bool {
	e, err := s.b.engine(ctx)
	if err != nil {
		return false
	}
	mode := s.b.userns(e, s.spec)
	return !mode.keepID && mode.base != modeFor(false).base
}

// isSlot reports whether a range of ours can begin there.
func isSlot(base int) bool {
	return base >= rangeStart && base < rangeStart+rangeSlots*rangeSize && (base-rangeStart)%rangeSize == 0
}

// OwnRange implements [sandbox.Ranger] for a rootful service: a slot at random
// that isn't taken, so that two who ask at once hardly get the same.
func (b *Backend) OwnRange(ctx context.Context, taken []sandbox.Owner) (sandbox.Owner, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return sandbox.Owner{}, err
	}
	if e.info.Host.Security.Rootless {
		return sandbox.Owner{}, fail(sandbox.ErrUnsupported, nil, "user namespace auto needs a rootful podman: in a rootless one programs have the ids of the user who runs it; leave it out")
	}
	ranges := append(subIDs("/etc/subuid"), subIDs("/etc/subgid")...)
	ranges = append(ranges, idRange{modeFor(false).base, rangeSize})
	for _, o := range taken {
		ranges = append(ranges, idRange{o.UID - sandbox.UserID, rangeSize})
	}
	base := freeRange(rand.IntN(rangeSlots), ranges)
	if overlaps(base, ranges) {
		return sandbox.Owner{}, fail(sandbox.ErrUnavailable, nil, "every range of user ids is in use; remove some sessions, or leave out user namespace auto")
	}
	return usernsMode{base: base}.owner(), nil
}

// CheapRanges implements [sandbox.Ranger]: Podman mounts the layers of an image with
// shifted ids, in place of a copy of the last one, from 4.0 on, where the storage is
// the kernel's overlay (which takes such layers from 5.19 on) over a file system
// that can be mounted so.
func (b *Backend) CheapRanges(ctx context.Context) bool {
	e, err := b.engine(ctx)
	if err != nil || e.info.Host.Security.Rootless || e.conn.URI.Scheme != "unix" {
		return false
	}
	store := e.info.Store
	if store.GraphDriverName != "overlay" || store.GraphOptions["overlay.mount_program"] != nil {
		return false
	}
	if !atLeast(e.info.Version.Version, 4, 0) || !atLeast(e.info.Host.Kernel, 5, 19) {
		return false
	}
	if shifted := b.shifted.Load(); shifted != nil && *shifted == store.GraphRoot {
		return true
	}
	err = shifts(ctx, store.GraphRoot)
	b.log.Debug("mount with shifted ids", "error", err)
	if err == nil { // nothing takes that away again; what failed may have been cancelled
		b.shifted.Store(&store.GraphRoot)
	}
	return err == nil
}

// shifts tries to make a mount of dir with shifted ids, which it puts nowhere.
func shifts(ctx context.Context, dir string) error {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: rangeStart, Size: rangeSize}}
	cmd := exec.CommandContext(ctx, "sleep", "60") // anything that waits to be killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, Pdeathsig: syscall.SIGKILL}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer ns.Close()
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
}

func modeFor(rootless bool) usernsMode {
	if rootless {
		return usernsMode{keepID: true}
	}
	taken := append(subIDs("/etc/subuid"), subIDs("/etc/subgid")...)
	return usernsMode{base: freeRange(os.Getuid(), taken)}
}

func (m usernsMode) idMap() []idtools.IDMap {
	return []idtools.IDMap{{ContainerID: 0, HostID: m.base, Size: rangeSize}}
}

// sign is the line of the ID map by which the mode is known.
func (m usernsMode) sign() string {
	if m.keepID {
		return fmt.Sprintf("%d:0:1", sandbox.UserID) // 0 is the user, in Podman's own namespace
	}
	return fmt.Sprintf("0:%d:%d", m.base, rangeSize)
}

func (m usernsMode) owner() sandbox.Owner {
	if m.keepID {
		return sandbox.Owner{UID: os.Getuid(), GID: os.Getgid()}
	}
	return sandbox.Owner{UID: m.base + sandbox.UserID, GID: m.base + sandbox.GroupID}
}

// Owner tells who must own a workspace's files: it finds Podman, because a
// service may be rootful where we are not. With an error it still gives the
// owner for a service of our own user.
func (b *Backend) Owner(ctx context.Context) (sandbox.Owner, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return modeFor(os.Getuid() != 0).owner(), err
	}
	return b.userns(e, sandbox.Spec{}).owner(), nil
}

type idRange struct{ start, size int }

// freeRange is the first slot from uid's own on that overlaps nothing taken.
func freeRange(uid int, taken []idRange) int {
	for i := range rangeSlots {
		base := rangeStart + (uid+i)%rangeSlots*rangeSize
		if !overlaps(base, taken) {
			return base
		}
	}
	return rangeStart
}

func overlaps(base int, taken []idRange) bool {
	for _, r := range taken {
		if base < r.start+r.size && r.start < base+rangeSize {
			return true
		}
	}
	return false
}

// subIDs reads name:start:size lines; what it can't read, it leaves out.
func subIDs(path string) []idRange {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []idRange
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 {
			continue
		}
		start, err1 := strconv.Atoi(fields[1])
		size, err2 := strconv.Atoi(fields[2])
		if err1 == nil && err2 == nil {
			out = append(out, idRange{start, size})
		}
	}
	return out
}
