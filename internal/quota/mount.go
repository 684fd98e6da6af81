package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/retry"
)

// MountImage mounts an image of [FormatImage] on an existing directory. Programs
// in it may be executed, devices and set-uid bits mean nothing there, and the
// mount takes part in no propagation. durable is for files that must survive a
// crash of the host: it costs a flush of the disk where its journal is written. It
// wraps [ErrUnable] where the host doesn't let us. One caller at a time for
// one image.
func MountImage(image, at string, durable bool) error {
	f, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	dev, err := attachLoop(f)
	if err != nil {
		return err
	}
	defer dev.Close()
	// Deleted files give their blocks back; tables are not zeroed in advance.
	options := "discard,noinit_itable"
	if !durable {
		options += ",nobarrier"
	}
	if err := unix.Mount(dev.Name(), at, "ext4", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("%w: mount the image: %w", ErrUnable, err)
	}
	if err := unix.Mount("", at, "", unix.MS_PRIVATE, ""); err != nil {
		return errors.Join(fmt.Errorf("%w: make the mount private: %w", ErrUnable, err), unix.Unmount(at, unix.MNT_DETACH))
	}
	return nil
}

// IsMounted says whether something is mounted on a directory.
func IsMounted(at string) bool {
	var inside, outside unix.Stat_t
	if unix.Lstat(at, &inside) != nil || unix.Lstat(filepath.Dir(at), &outside) != nil {
		return false
	}
	return inside.Dev != outside.Dev
}

// unmountWait is how long who still uses a mount has to leave it: a container
// that is just removed, for one.
const unmountWait = 2 * time.Second

// TryUnmount ends a mount that nobody uses; nothing there is no error.
func TryUnmount(at string) error {
	if !IsMounted(at) {
		return nil
	}
	return unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
}

// Unmount ends whatever is mounted on a directory; nothing there is no error. A
// mount that stays in use is taken out of sight and ends with its last user.
func Unmount(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, unmountWait)
	defer cancel()
	for range maxStacked {
		if !IsMounted(at) {
			return nil
		}
		if err := unmountTop(ctx, at); err != nil {
			return fmt.Errorf("unmount the image: %w", err)
		}
	}
	return nil
}

// maxStacked is how many mounts may lie on one directory, one over the other.
const maxStacked = 16

func unmountTop(ctx context.Context, at string) error {
	busy := func(err error) bool { return errors.Is(err, unix.EBUSY) }
	times := retry.Times{Count: 100, Pause: unmountWait / 100}
	err := times.Do(ctx, busy, func() error { return unix.Unmount(at, unix.UMOUNT_NOFOLLOW) })
	if busy(err) {
		err = unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	return err
}
