//go:build !linux

package resident

import "context"

// Taken leads nowhere: only Linux has containers.
type Taken struct {
	PID func(ctx context.Context) (int, error)
}

// Dial implements [Link]: it is [ErrNoWay].
func (Taken) Dial(context.Context) (Ends, error) { return Ends{}, ErrNoWay }
