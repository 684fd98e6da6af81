package podman

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.podman.io/storage/pkg/idtools"

	"github.com/wisbox/wisbox/sandbox"
)

// Each rootful container has its own range of IDs, because the kernel counts pipes, descriptors in transit and more per
// ID. That is free if IDs can be shifted (see CheapRanges). Otherwise it costs a mapped layer, so containers of one
// host user share a range unless they request their own, and Podman makes the layer once. The ranges lie above those
// that systemd and the usual /etc/subuid assign (524288 to 1879048191) and below 2^31. There are 4,096 slots; the
// shared one is chosen by our own uid, and is the next that /etc/subuid and /etc/subgid don't name.
const (
	rangeSize  = 65_536
	rangeStart = 0x70000000
	rangeSlots = 4096
)

// usernsMode describes the mapping of container IDs to host IDs.
type usernsMode struct {
	base int // rootful: 0 inside is base

	rootless   bool // 1000 inside is the user that runs Podman, the others are subordinate IDs
	uids, gids int  // rootless: how many subordinate IDs the service has
}

func (b *Backend) userns(e *engine, spec sandbox.Spec) usernsMode {
	mode := modeFor(e.info.Host.Security.Rootless)
	if mode.rootless {
		mode.uids, mode.gids = subordinates(e.info.Host.IDMappings.UIDs), subordinates(e.info.Host.IDMappings.GIDs)
		return mode
	}
	if base := spec.Owner.UID - sandbox.UserID; isSlot(base) {
		mode.base = base
	}
	return mode
}

// subordinates returns how many IDs follow 0 without a gap in the namespace of a rootless service. In it 0 is the user,
// and the others are those that /etc/subuid or a name service gave the user when the namespace was made.
func subordinates(ids []idtools.IDMap) int {
	ids = slices.SortedFunc(slices.Values(ids), func(a, b idtools.IDMap) int { return cmp.Compare(a.ContainerID, b.ContainerID) })
	next := 0
	for _, m := range ids {
		if m.ContainerID != next {
			break
		}
		next += m.Size
	}
	return max(0, next-1)
}

// usable returns an error if the user has no subordinate IDs, which the agent needs.
func (m usernsMode) usable() error {
	if !m.rootless || m.uids > 0 && m.gids > 0 {
		return nil
	}
	return fail(sandbox.ErrUnavailable, nil, "podman found no subordinate IDs for this user; add some with `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$USER\"`, then run `podman system migrate`")
}

// hasOwnIDs reports whether the sandbox has its own range of IDs.
func (s *Sandbox) hasOwnIDs(ctx context.Context) bool {
	e, err := s.b.engine(ctx)
	if err != nil {
		return false
	}
	mode := s.b.userns(e, s.spec)
	return !mode.rootless && mode.base != modeFor(false).base
}

// isSlot reports whether one of our ranges can begin at base.
func isSlot(base int) bool {
	return base >= rangeStart && base < rangeStart+rangeSlots*rangeSize && (base-rangeStart)%rangeSize == 0
}

// OwnRange implements [sandbox.Ranger] for a rootful service: a random free slot, so that two concurrent calls hardly
// get the same.
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
		return sandbox.Owner{}, fail(sandbox.ErrUnavailable, nil, "every range of user IDs is in use; remove some sessions, or leave out user namespace auto")
	}
	return usernsMode{base: base}.owner(), nil
}

// CheapRanges implements [sandbox.Ranger]: from 4.0 on Podman mounts the layers of an image with shifted IDs instead of
// copying the last one, if the storage is the kernel's overlay (which accepts such layers from 5.19 on) on a file
// system that supports such mounts.
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
	if err == nil { // a success stays valid; a failure may have been a cancellation
		b.shifted.Store(&store.GraphRoot)
	}
	return err == nil
}

func modeFor(rootless bool) usernsMode {
	if rootless {
		return usernsMode{rootless: true}
	}
	taken := append(subIDs("/etc/subuid"), subIDs("/etc/subgid")...)
	return usernsMode{base: freeRange(os.Getuid(), taken)}
}

// idMaps returns the whole mapping, of users and of groups. For a rootless service it is that of Podman's mode keep-id,
// for which the service would look for the user's IDs in each create: libsubid, which does it, may end a service that
// creates two containers at once.
func (m usernsMode) idMaps() (uids, gids []idtools.IDMap) {
	if m.rootless {
		return around(sandbox.UserID, m.uids), around(sandbox.GroupID, m.gids)
	}
	all := []idtools.IDMap{{ContainerID: 0, HostID: m.base, Size: rangeSize}}
	return all, all
}

// around returns the mapping of id to 0, and of the IDs below and above it to the subordinate ones in turn.
func around(id, subordinates int) []idtools.IDMap {
	maps := []idtools.IDMap{{ContainerID: 0, HostID: 1, Size: min(id, subordinates)}, {ContainerID: id, HostID: 0, Size: 1}}
	if above := subordinates - id; above > 0 {
		maps = append(maps, idtools.IDMap{ContainerID: id + 1, HostID: id + 1, Size: above})
	}
	return maps
}

// sign returns the line of the ID map that identifies the mode.
func (m usernsMode) sign() string {
	if m.rootless {
		return fmt.Sprintf("%d:0:1", sandbox.UserID) // 0 is the user, in Podman's own namespace
	}
	return fmt.Sprintf("0:%d:%d", m.base, rangeSize)
}

func (m usernsMode) owner() sandbox.Owner {
	if m.rootless {
		return sandbox.Owner{UID: os.Getuid(), GID: os.Getgid()}
	}
	return sandbox.Owner{UID: m.base + sandbox.UserID, GID: m.base + sandbox.GroupID}
}

// Owner returns the owner that a workspace's files must have. It looks for Podman, because a service may be rootful
// although we are not. With an error it still returns the owner for a service of our own user.
func (b *Backend) Owner(ctx context.Context) (sandbox.Owner, error) {
	e, err := b.engine(ctx)
	if err != nil {
		return modeFor(os.Getuid() != 0).owner(), err
	}
	return b.userns(e, sandbox.Spec{}).owner(), nil
}

type idRange struct{ start, size int }

// freeRange returns the first slot, starting at uid's, that doesn't overlap a taken range.
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

// subIDs reads name:start:size lines; it skips lines that it can't parse.
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
