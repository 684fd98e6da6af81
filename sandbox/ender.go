package sandbox

import "context"

// Ender is a [Sandbox] whose programs can be ended for a limit that is watched
// from outside of it.
type Ender interface {
	// EndAll ends every program that this handle runs; their results have the
	// status. It doesn't wait for that, and programs that begin later are not
	// touched.
	EndAll(ctx context.Context, status Status) error
}
