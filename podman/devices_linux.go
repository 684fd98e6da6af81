package podman

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// hostDevices keeps the device nodes of the host as they are while a runtime works: some versions give a node that is
// a container's standard stream, such as /dev/null, to the container's user (crun's issue 1845, runc's 3674), and only root may.
type hostDevices struct {
	dirs   []string // that have device nodes
	record string   // file with the nodes before the runtimes that work now, who have a shared lock on it
	log    *slog.Logger
}

func newHostDevices(log *slog.Logger) *hostDevices {
	return &hostDevices{dirs: []string{"/dev", "/dev/net"}, record: "/run/wisbox-devices.json", log: log}
}

// deviceNode describes a node.
type deviceNode struct {
	UID, GID, Mode uint32
	Device, Inode  uint64 // its number, and that of the node itself
}

// lent lists the major numbers of devices that login managers give to users, and take back: terminals, consoles, input, sound,
// graphics. What changes there meanwhile is no fault of a runtime.
var lent = []uint32{4, 5, 7, 13, 14, 29, 81, 116, 136, 137, 138, 139, 140, 141, 142, 143, 226}

// coarse is the resolution of the kernel's times of files, at most.
const coarse = 20 * time.Millisecond

// during calls do and puts back what changed meanwhile. Many processes may do so at once.
func (d *hostDevices) during(do func() error) error {
	if os.Geteuid() != 0 {
		return do()
	}
	begun := time.Now().Add(-coarse)
	before, done, err := d.before(begun)
	if err != nil {
		d.log.Warn("the host's device nodes are compared without those of other starts", "error", err)
		before, done = d.look(), func() {}
	}
	defer func() { // also if do panics
		d.putBack(before, begun)
		done()
	}()
	return do()
}

// deviceRecord is the content of the file.
type deviceRecord struct {
	Begun time.Time
	Nodes map[string]deviceNode
}

// before returns the nodes as they were before any runtime began that still works, in any process: a node that another one
// has changed just now is no measure. If the last process was killed meanwhile, what it left is put back first.
func (d *hostDevices) before(begun time.Time) (nodes map[string]deviceNode, done func(), err error) {
	f, err := os.OpenFile(d.record, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	lock := func(how int) error {
		_, err := retry.Interrupted(func() (int, error) { return 0, unix.Flock(int(f.Fd()), how) })
		return err
	}
	done = func() {
		if lock(unix.LOCK_EX|unix.LOCK_NB) == nil { // the last one
			_ = f.Truncate(0)
		}
		_ = f.Close()
	}
	for range 10 { // the last one may end while this one waits for it, and others may wait too
		if lock(unix.LOCK_EX|unix.LOCK_NB) == nil {
			nodes, err = d.first(f, begun)
			err = errors.Join(err, lock(unix.LOCK_SH))
			break
		}
		var kept deviceRecord
		if err = lock(unix.LOCK_SH); err == nil {
			err = readRecord(f, &kept)
		}
		if nodes = kept.Nodes; !errors.Is(err, io.EOF) {
			break
		}
	}
	if err != nil {
		_ = f.Close()
	}
	return nodes, done, err
}

// first records the nodes while no runtime works, and puts back what a killed process left.
func (d *hostDevices) first(f *os.File, begun time.Time) (map[string]deviceNode, error) {
	var left deviceRecord
	if readRecord(f, &left) == nil {
		d.putBack(left.Nodes, left.Begun)
	}
	now := deviceRecord{begun, d.look()}
	text, _ := json.Marshal(now) // can't fail
	_, err := f.WriteAt(text, 0)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return now.Nodes, err
}

func readRecord(f *os.File, r *deviceRecord) error {
	return json.NewDecoder(io.NewSectionReader(f, 0, 1<<20)).Decode(r)
}

func (d *hostDevices) look() map[string]deviceNode {
	nodes := map[string]deviceNode{}
	for _, dir := range d.dirs {
		entries, _ := os.ReadDir(dir) // not every host has each
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if e.Type()&os.ModeDevice == 0 {
				continue
			}
			if n, _, ok := nodeAt(path); ok {
				nodes[path] = n
			}
		}
	}
	return nodes
}

func nodeAt(path string) (n deviceNode, changed time.Time, ok bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR && st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return n, changed, false
	}
	if st.Mode&unix.S_IFMT == unix.S_IFCHR && slices.Contains(lent, unix.Major(st.Rdev)) {
		return n, changed, false
	}
	return deviceNode{st.Uid, st.Gid, st.Mode, st.Rdev, st.Ino}, time.Unix(st.Ctim.Unix()), true
}

// putBack restores nodes that have changed since begun.
func (d *hostDevices) putBack(before map[string]deviceNode, begun time.Time) {
	for path, was := range before {
		now, changed, ok := nodeAt(path)
		if !ok || now == was || now.Device != was.Device || now.Inode != was.Inode || changed.Before(begun) {
			continue
		}
		err := errors.Join(unix.Lchown(path, int(was.UID), int(was.GID)), unix.Chmod(path, was.Mode&0o7777))
		if err != nil {
			d.log.Error("a device node of the host has another owner or mode since a container started, and stays so", "node", path, "error", err)
			continue
		}
		d.log.Warn("a device node of the host got another owner or mode while a container started; it was put back", "node", path, "got", now, "put_back", was)
	}
}
