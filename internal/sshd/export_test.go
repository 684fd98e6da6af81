package sshd

import (
	"context"
	"io"
	"time"
)

// Hurry shortens the server's waits.
func (o *Options) Hurry(gap, idle, stuck, operation time.Duration) {
	o.times = times{gap, idle, stuck, operation}
}

const MaxUnanswered = maxUnanswered

func Frames(ctx context.Context, ch io.ReadWriteCloser) io.ReadWriteCloser { return newFrames(ctx, ch) }
