package wisbox

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// stuck is a sandbox in which nothing ends a program but its removal.
type stuck struct {
	sandbox.Sandbox
	sandbox.Process
	removed chan struct{}
}

func (s *stuck) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return s.Wait(context.Background())
}

func (s *stuck) Start(context.Context, sandbox.Cmd) (sandbox.Process, error) { return s, nil }

func (s *stuck) Wait(context.Context) (sandbox.Result, error) {
	<-s.removed
	return sandbox.Result{Status: sandbox.StatusSandboxLost, ExitCode: -1}, nil
}

func (s *stuck) Kill() error { return nil }

func (s *stuck) Close(context.Context) error {
	close(s.removed)
	return nil
}

// quick is one whose programs end at once.
type quick struct{ stuck }

func (q *quick) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

func boxOf(sb sandbox.Sandbox) *box {
	return newBox(func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, slog.New(slog.DiscardHandler))
}

func TestAProgramThatOutlivesItsEndCostsItsSandbox(t *testing.T) {
	run := func(ctx context.Context, b *box, limit time.Duration) (sandbox.Result, error) {
		return b.Run(ctx, sandbox.Cmd{Timeout: limit})
	}
	for name, c := range map[string]struct {
		do     func(context.Context, *box) (sandbox.Result, error)
		status sandbox.Status
		code   int
		after  time.Duration
	}{
		"its limit": {func(ctx context.Context, b *box) (sandbox.Result, error) {
			return run(ctx, b, time.Minute)
		}, sandbox.StatusTimedOut, 124, time.Minute + overdue},
		"its caller's end": {func(ctx context.Context, b *box) (sandbox.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return run(ctx, b, time.Minute)
		}, sandbox.StatusCancelled, 137, time.Second + overdue},
		"the limit of a started one": {func(ctx context.Context, b *box) (sandbox.Result, error) {
			p, err := b.Start(ctx, sandbox.Cmd{Timeout: time.Minute})
			require.NoError(t, err)
			return p.Wait(ctx)
		}, sandbox.StatusTimedOut, 124, time.Minute + overdue},
		"the kill of a started one": {func(ctx context.Context, b *box) (sandbox.Result, error) {
			p, err := b.Start(ctx, sandbox.Cmd{})
			require.NoError(t, err)
			require.NoError(t, p.Kill())
			return p.Wait(ctx)
		}, sandbox.StatusTimedOut, 124, overdue},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := boxOf(&stuck{removed: make(chan struct{})})
				began := time.Now()
				got, err := c.do(t.Context(), b)
				require.NoError(t, err)
				assert.Equal(t, c.after, time.Since(began))
				assert.Equal(t, c.status, got.Status)
				assert.Equal(t, c.code, got.ExitCode)
				require.Len(t, got.Notices, 1)
				assert.Contains(t, got.Notices[0], "its sandbox was removed")
				synctest.Wait()
				left, err := b.peek(t.Context())
				require.NoError(t, err)
				assert.Nil(t, left, "the next call has another sandbox")
			})
		})
	}
}

func TestAProgramThatEndsInTimeCostsNoSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &quick{stuck{removed: make(chan struct{})}}
		ctx, cancel := context.WithCancel(t.Context())
		_, err := boxOf(sb).Run(ctx, sandbox.Cmd{Timeout: time.Second})
		require.NoError(t, err)
		cancel()
		select {
		case <-sb.removed:
			t.Fatal("the sandbox of a program that had ended was removed")
		case <-time.After(time.Hour):
		}
	})
}
