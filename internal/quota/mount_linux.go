package quota

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
)

// Mounting has the options of a mount of an image.
type Mounting struct {
	// Durable is for files that must survive a crash of the host. It costs a flush of the disk
	// whenever the journal is written.
	Durable bool
	// New means that the image has just been created, so it can't be mounted yet: MountImage then
	// skips the search for its device, which takes longer the more devices there are.
	New bool
}

// MountImage mounts an image of [FormatImage] on an existing directory. Programs in it can be
// executed, devices and set-uid bits have no effect, and the mount isn't propagated. The error
// wraps [ErrUnable] if the host doesn't permit it. Only one caller at a time may mount an image.
func MountImage(image, at string, how Mounting) error {
	f, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	dev, err := attachLoop(f, how.New)
	if err != nil {
		return err
	}
	defer dev.Close()
	// discard frees the blocks of deleted files; noinit_itable doesn't zero tables in advance.
	options := "discard,noinit_itable"
	if !how.Durable {
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

// IsMounted reports whether something is mounted on a directory.
func IsMounted(at string) bool {
	var inside, outside unix.Stat_t
	if unix.Lstat(at, &inside) != nil || unix.Lstat(filepath.Dir(at), &outside) != nil {
		return false
	}
	return inside.Dev != outside.Dev
}

// unmountWait is the time for the last users of a mount to leave, for instance a container that is
// being removed.
var unmountWait = patience.For(2 * time.Second)

// TryUnmount unmounts a directory unless the mount is in use. A directory without a mount is not an
// error.
func TryUnmount(at string) error {
	if !IsMounted(at) {
		return nil
	}
	return unix.Unmount(at, unix.UMOUNT_NOFOLLOW)
}

// Unmount unmounts a directory. A directory without a mount is not an error. A mount that stays in
// use is detached and ends with its last user.
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

// maxStacked is the maximum number of mounts on one directory.
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
