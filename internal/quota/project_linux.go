package quota

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The quota calls of linux/quota.h and linux/dqblk_xfs.h.
const (
	projectQuota = 2
	getQuota     = 0x800007
	setQuota     = 0x800008
	getState     = 'X'<<8 + 5

	limitsValid = 1 | 4  // QIF_BLIMITS, QIF_ILIMITS
	enforced    = 1 << 5 // FS_QUOTA_PDQ_ENFD

	getAttr     = 0x801c581f // FS_IOC_FSGETXATTR
	setAttr     = 0x401c5820 // FS_IOC_FSSETXATTR
	projInherit = 0x200      // FS_XFLAG_PROJINHERIT
)

// usage is struct if_dqblk: in bytes, except for the limits of blocks, in KiB.
type usage struct {
	hardKiB, softKiB, bytes        uint64
	hardInodes, softInodes, inodes uint64
	bytesTime, inodesTime          uint64
	valid                          uint32
	_                              uint32
}

// attr is struct fsxattr.
type attr struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

// firstProject avoids the small numbers that people give to projects.
const firstProject = 1 << 24

// SetProject puts empty directories of one file system, and everything that will be created in
// them, under a new project quota, and returns the project's number. The error wraps [ErrUnable] if
// the file system doesn't enforce project quotas, or we may not set them.
func SetProject(limit Limit, dirs ...*os.File) (project uint32, err error) {
	if err := isEnforced(dirs[0]); err != nil {
		return 0, err
	}
	if project, err = freeProject(dirs[0]); err != nil {
		return 0, err
	}
	if err := setLimits(dirs[0], project, limit, len(dirs)); err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		if err := assign(dir, project); err != nil {
			return 0, errors.Join(err, FreeProject(dirs[0], project))
		}
	}
	return project, nil
}

// SetLimit changes the limit of a project whose content is in these directories.
func SetLimit(project uint32, limit Limit, dirs ...*os.File) error {
	return setLimits(dirs[0], project, limit, len(dirs))
}

// Assign adds a directory to a project.
func Assign(dir *os.File, project uint32) error { return assign(dir, project) }

// FreeProject removes a project's limits. dir is anything on the file system.
func FreeProject(dir *os.File, project uint32) error {
	return quotactl(dir, setQuota, project, unsafe.Pointer(&usage{valid: limitsValid}))
}

// ProjectUsage returns a project's usage and its limits.
func ProjectUsage(dir *os.File, project uint32) (taken, limit Limit, err error) {
	var u usage
	err = quotactl(dir, getQuota, project, unsafe.Pointer(&u))
	return Limit{int64(u.bytes), int64(u.inodes)}, Limit{int64(u.hardKiB) << 10, int64(u.hardInodes)}, err
}

// HasProjects reports whether project quotas work below a directory.
func HasProjects(root *os.Root) bool {
	dir, err := root.Open(".")
	if err != nil {
		return false
	}
	defer dir.Close()
	return isEnforced(dir) == nil
}

func isEnforced(dir *os.File) error {
	var state struct {
		version int8
		flags   uint16
		_       [124]byte
	}
	if err := quotactl(dir, getState, 0, unsafe.Pointer(&state)); err != nil {
		return err
	}
	if state.flags&enforced == 0 {
		return fmt.Errorf("%w: project quotas are not enforced", ErrUnable)
	}
	return nil
}

func freeProject(dir *os.File) (uint32, error) {
	for range 64 {
		project := firstProject + rand.Uint32N(1<<30)
		taken, limit, err := ProjectUsage(dir, project)
		if errors.Is(err, unix.ENOENT) || err == nil && taken == (Limit{}) && limit == (Limit{}) {
			return project, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: no free project number", ErrUnable)
}

// setLimits sets the limits and reads them back; the directories themselves don't count.
func setLimits(dir *os.File, project uint32, limit Limit, own int) error {
	u := usage{hardKiB: uint64(ceilDiv(limit.Bytes, 1024)), valid: limitsValid}
	if limit.Inodes > 0 {
		u.hardInodes = uint64(limit.Inodes) + uint64(own)
	}
	if err := quotactl(dir, setQuota, project, unsafe.Pointer(&u)); err != nil {
		return err
	}
	_, got, err := ProjectUsage(dir, project)
	if err == nil && (got != Limit{int64(u.hardKiB) << 10, int64(u.hardInodes)}) {
		err = fmt.Errorf("%w: the project's limits were not taken over", ErrUnable)
	}
	return err
}

func assign(dir *os.File, project uint32) error {
	var a attr
	if err := ioctl(dir, getAttr, &a); err != nil {
		return err
	}
	a.project, a.flags = project, a.flags|projInherit
	if err := ioctl(dir, setAttr, &a); err != nil {
		return err
	}
	var got attr
	if err := ioctl(dir, getAttr, &got); err != nil {
		return err
	}
	if got.project != project || got.flags&projInherit == 0 {
		return fmt.Errorf("%w: the directory was not taken into the project", ErrUnable)
	}
	return nil
}

func ioctl(f *os.File, request uintptr, a *attr) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a)))
	return unable("set the project", errno)
}

// quotactl calls quotactl_fd(2), which needs no block device's name.
func quotactl(f *os.File, command, id uint32, arg unsafe.Pointer) error {
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL_FD, f.Fd(), uintptr(command<<8|projectQuota), uintptr(id), uintptr(arg), 0, 0)
	return unable("quotactl", errno)
}

func unable(what string, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrUnable, what, errno)
}
