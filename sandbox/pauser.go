package sandbox

import "context"

// Pauser is a [Sandbox] whose programs can be made to stand still.
type Pauser interface {
	// Pause stops every program until Resume; their time limits don't run meanwhile. A
	// call that needs the sandbox waits. Where the host can't do it it wraps [ErrUnsupported].
	Pause(ctx context.Context) error
	// Resume lets the programs go on, whoever has paused them; where none stands still it
	// does nothing. It wraps [ErrLost] where the sandbox is gone.
	Resume(ctx context.Context) error
}
