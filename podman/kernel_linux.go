package podman

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	limitQueues  = unix.RLIMIT_MSGQUEUE
	limitSignals = unix.RLIMIT_SIGPENDING
)

// endsWithThread makes a process end with the thread that starts it.
func endsWithThread(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }

// joinNewKeyring gives this thread a session keyring without keys.
func joinNewKeyring() error {
	_, err := unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) // without a name it is a new one
	return err
}

// shifts tries to create a detached mount of dir with shifted IDs.
func shifts(ctx context.Context, dir string) error {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: rangeStart, Size: rangeSize}}
	cmd := exec.CommandContext(ctx, "sleep", "60") // any program that runs until it is killed
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
