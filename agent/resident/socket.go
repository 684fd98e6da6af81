package resident

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"

	"github.com/wisbox/wisbox/sandbox"
)

// Socket is an agent that listens at a path, as in a Pod, whose containers share a directory.
type Socket struct {
	Path string
	// Now doesn't wait for an agent that has yet to begin: Dial wraps [sandbox.ErrLost].
	Now bool
}

// Dial implements [Link]. No descriptor comes this way.
func (s Socket) Dial(ctx context.Context) (Ends, error) {
	var dialer net.Dialer
	for wait := newWait(); ; {
		conn, err := dialer.DialContext(ctx, "unix", s.Path)
		switch {
		case err == nil:
			return Ends{Frames: conn}, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED):
			return Ends{}, fmt.Errorf("%w: %w", sandbox.ErrUnavailable, err)
		case s.Now:
			return Ends{}, fmt.Errorf("%w: %w", sandbox.ErrLost, err)
		case !wait.next(ctx):
			return Ends{}, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}
