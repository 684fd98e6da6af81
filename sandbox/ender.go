package sandbox

import "context"

// Ender is a [Sandbox] whose programs can be ended for a limit that is watched from outside.
type Ender interface {
	// EndAll ends every program that this handle runs, with the status in their results. It
	// doesn't wait for their end, and doesn't affect programs that begin later.
	EndAll(ctx context.Context, status Status) error
}
