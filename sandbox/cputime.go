package sandbox

import (
	"context"
	"time"
)

// CPUTimer is a [Sandbox] that measures whether anything ran in it.
type CPUTimer interface {
	// CPUTime returns the processor time that everything in the sandbox has used so far, regardless of which client
	// started it. A program's time counts from the kernel's next clock tick on, at most 10 ms later; an idle sandbox
	// uses none. If the host doesn't count the time, the error wraps [ErrUnsupported].
	CPUTime(ctx context.Context) (time.Duration, error)
}
