package sandbox

import "context"

// Pauser is a [Sandbox] whose programs can be made to stand still.
type Pauser interface {
	// Pause stops every program until resume, which may be called twice and
	// doesn't need ctx. Where the host can't do that it wraps [ErrUnsupported].
	Pause(ctx context.Context) (resume func(), err error)
}
