package quota

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// inMemory returns an empty file of that size, of which only what is written takes memory.
func inMemory(size int64) (*os.File, error) {
	const name = "wisbox-image"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// copyData copies what is written of a file to the same places of another one.
func copyData(to, from *os.File) error {
	for at := int64(0); ; {
		data, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing beyond
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(int(from.Fd()), data, unix.SEEK_HOLE); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(to, data), io.NewSectionReader(from, data, at-data)); err != nil {
			return err
		}
	}
}
