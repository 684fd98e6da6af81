package resident

import (
	"context"
	"io"
)

// Relayed is an agent that is reached by a program beside it: a relay that whoever
// holds the container executes attached.
type Relayed struct {
	// Exec executes argv in the container as uid 0. Writes to the stream go
	// to its stdin, reads come from its stdout; closing the stream ends it.
	Exec func(ctx context.Context, argv []string) (io.ReadWriteCloser, error)
}

// Dial implements [Link]. No descriptor comes this way.
func (r Relayed) Dial(ctx context.Context) (Ends, error) {
	stream, err := r.Exec(ctx, RelayArgv())
	return Ends{Frames: stream}, err
}
