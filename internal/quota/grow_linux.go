package quota

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	growExt4  = 0x40086610 // EXT4_IOC_RESIZE_FS
	growTries = 4          // each adds what ext4 took for itself
)

// GrowImage gives the image of [FormatImage] that is mounted there, and may be in use, room for that
// many bytes of files in all. It returns the number of entries for which the larger image has room: ext4 adds
// inodes with its blocks. After an error the size is the former one.
func GrowImage(image, at string, bytes int64) (inodes int64, err error) {
	f, err := os.OpenFile(image, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	root, err := os.Open(at)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	dev := findLoop(f)
	if dev == nil {
		return 0, fmt.Errorf("%w: the image has no loop device", ErrUnable)
	}
	defer dev.Close()
	size, err := ext4Size(dev) // the file may be larger, if an earlier call was killed
	if err != nil {
		return 0, err
	}
	for range growTries {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(root.Fd()), &st); err != nil {
			return 0, err
		}
		kept := min(int64(st.Blocks)/49, groupBlocks/8) // see imageBlocks
		missing := bytes - (int64(st.Blocks)-kept)*blockSize
		if missing <= 0 {
			return int64(st.Files) - reservedInodes, nil
		}
		next := (size + missing + missing/16 + groupBlocks*blockSize/64) / blockSize * blockSize
		if err := growTo(f, dev, root, next); err != nil {
			return 0, errors.Join(err, shrinkBack(f, dev, size))
		}
		size = next
	}
	return 0, fmt.Errorf("%w: the file system doesn't grow", ErrUnable)
}

// ext4Size returns the size of the file system on a device, by its superblock.
func ext4Size(dev *os.File) (int64, error) {
	const superblock, low, high = 1024, 0x4, 0x150
	block := make([]byte, superblock)
	if _, err := dev.ReadAt(block, superblock); err != nil {
		return 0, err
	}
	blocks := uint64(binary.LittleEndian.Uint32(block[high:]))<<32 | uint64(binary.LittleEndian.Uint32(block[low:]))
	return int64(blocks) * blockSize, nil
}

func growTo(f, dev, root *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0); err != nil {
		return fmt.Errorf("%w: the loop device: %w", ErrUnable, err)
	}
	blocks := uint64(size / blockSize)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), growExt4, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return fmt.Errorf("%w: ext4: %w", ErrUnable, errno)
	}
	return nil
}

func shrinkBack(f, dev *os.File, size int64) error {
	return errors.Join(f.Truncate(size), unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_SET_CAPACITY, 0))
}
