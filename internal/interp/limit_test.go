package interp

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/wisbox/wisbox/sandbox"
)

// paused is a process that is frozen for an hour, two seconds after its start.
type paused struct {
	sandbox.Process
	began time.Time
}

func (p paused) Stood() time.Duration {
	return max(0, min(time.Since(p.began)-time.Second, time.Hour))
}

func (paused) Wait(ctx context.Context) (sandbox.Result, error) {
	<-ctx.Done()
	return sandbox.Result{}, ctx.Err()
}

// decorated is a process that says only what it decorates.
type decorated struct{ sandbox.Process }

func (d decorated) Unwrap() sandbox.Process { return d.Process }

// TestATimeLimitDoesNotRunWhileTheProcessStandsStill.
func TestATimeLimitDoesNotRunWhileTheProcessStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &Process[io.Writer]{proc: decorated{paused{began: began}}, answers: NewInbox(64), done: make(chan struct{})}
		answered, late := p.Await(t.Context(), 2*time.Second, func([]byte) bool { return true })
		assert.False(t, answered)
		assert.Equal(t, sandbox.StatusTimedOut, late)
		assert.InDelta(t, (time.Hour + 2*time.Second).Seconds(), time.Since(began).Seconds(), 1)
	})
}
