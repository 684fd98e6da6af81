package sandbox

import "context"

// Pauser is a [Sandbox] whose programs can be frozen.
type Pauser interface {
	// Pause freezes every program until Resume, and their time limits with them. Calls that
	// need the sandbox wait. The error wraps [ErrUnsupported] if the host can't do it.
	Pause(ctx context.Context) error
	// Resume thaws the programs, even if another client paused them. It does nothing if they aren't
	// frozen. The error wraps [ErrLost] if the sandbox is gone.
	Resume(ctx context.Context) error
}
