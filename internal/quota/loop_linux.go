package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loopTries bounds the attempts to get a free device, since another process may take it first.
const loopTries = 16

// attachLoop returns a loop device of the image. It reuses an existing one: two devices on one file
// would be two independent file systems that destroy it. Callers take turns by their own lock; a
// new image has no device yet. The device is freed once nothing has it open or mounted.
func attachLoop(image *os.File, isNew bool) (*os.File, error) {
	if !isNew {
		if dev := findLoop(image); dev != nil {
			return dev, nil
		}
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnable, err)
	}
	defer control.Close()
	for range loopTries {
		var dev *os.File
		if dev, err = configureFree(control, image); err == nil {
			return dev, nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrUnable, err)
}

func configureFree(control, image *os.File) (*os.File, error) {
	number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		return nil, err
	}
	dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", number), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	config := &unix.LoopConfig{Fd: uint32(image.Fd()), Size: blockSize, Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}}
	if err := unix.IoctlLoopConfigure(int(dev.Fd()), config); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return dev, nil
}

// findLoop returns the image's device, or nil.
func findLoop(image *os.File) *os.File {
	var st unix.Stat_t
	if unix.Fstat(int(image.Fd()), &st) != nil {
		return nil
	}
	attached, _ := filepath.Glob("/sys/block/loop*/loop")
	for _, dir := range attached {
		dev, err := os.OpenFile("/dev/"+filepath.Base(filepath.Dir(dir)), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(dev.Fd()))
		if err == nil && info.Device == uint64(st.Dev) && info.Inode == st.Ino {
			return dev
		}
		_ = dev.Close()
	}
	return nil
}
