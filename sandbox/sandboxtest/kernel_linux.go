package sandboxtest

import (
	"math"

	"golang.org/x/sys/unix"
)

const waitingBytes = unix.TIOCINQ

// keepFromPrograms makes descriptors from least on close in programs that are started.
func keepFromPrograms(least uint) {
	_ = unix.CloseRange(least, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}

// inheritOrphans makes this process the parent of all orphans below it.
func inheritOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
