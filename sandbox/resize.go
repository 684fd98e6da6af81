package sandbox

import "context"

// Resizer is a [Sandbox] whose limits can change while its programs run.
type Resizer interface {
	// Resize changes the sandbox's limits to l, which may differ from its present ones in CPUs,
	// Memory and PIDs. Programs go on. After an error, the limits are as they were, as far as the
	// host permits. [Sandbox.Info] reads back what holds.
	Resize(ctx context.Context, l Limits) error
}
