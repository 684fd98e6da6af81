package wasm

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapOver replaces a part of a mapping by a private mapping of the file. The standard
// wrappers can't map at an address.
func mapOver(at []byte, file *os.File) error {
	_, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(unsafe.Pointer(unsafe.SliceData(at))), uintptr(len(at)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED, file.Fd(), 0)
	runtime.KeepAlive(file)
	if errno != 0 {
		return errno
	}
	return nil
}
