package kernel

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OpenTerminal creates a terminal with that many columns and rows. It belongs to the effective user.
func OpenTerminal(columns, rows uint16) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, -1, err
	}
	var number uint32
	var unlock int32
	err = ioctl(master, unix.TIOCSPTLCK, unsafe.Pointer(&unlock))
	if err == nil {
		err = ioctl(master, unix.TIOCGPTN, unsafe.Pointer(&number))
	}
	if err == nil {
		slave, err = unix.Open("/dev/pts/"+strconv.FormatUint(uint64(number), 10), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		_ = unix.Close(master)
		return -1, -1, err
	}
	SetSize(master, columns, rows)
	return master, slave, nil
}

// SetSize changes a terminal's size.
func SetSize(fd int, columns, rows uint16) {
	_ = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
}

// Pending returns how many bytes wait in a pipe.
func Pending(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
