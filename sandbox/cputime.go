package sandbox

import (
	"context"
	"time"
)

// CPUTimer is a [Sandbox] that reports whether something ran in it.
type CPUTimer interface {
	// CPUTime is the processor time that everything in the sandbox has used so far,
	// whoever started it. What has run counts from the kernel's next clock tick on,
	// at most 10 ms later. What is idle uses none. Where the host doesn't count, it
	// wraps [ErrUnsupported].
	CPUTime(ctx context.Context) (time.Duration, error)
}
