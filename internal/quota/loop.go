package quota

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// loopTries: another process may take the free device that we were told of.
const loopTries = 16

// attachLoop gives a block device that is the image. A device that is the image
// already is used again: two devices over one file would be two file systems
// that know nothing of each other and destroy it. Callers take turns by a lock of
// their own. The device frees itself once nothing has it open or mounted.
func attachLoop(image *os.File) (*os.File, error) {
	if dev := findLoop(image); dev != nil {
		return dev, nil
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

// findLoop gives the device whose file is this image, or nil.
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
