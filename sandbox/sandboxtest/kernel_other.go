//go:build !linux

package sandboxtest

import "golang.org/x/sys/unix"

const waitingBytes = 0x4004667f // FIONREAD

// The other functions are stubs: a [Host] needs Linux, and runs no programs elsewhere.

func keepFromPrograms(uint) {}

func inheritOrphans() error { return unix.ENOSYS }
