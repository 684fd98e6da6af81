package box

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
)

// stuck is a sandbox in which only its removal ends a program.
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

// quick is a sandbox whose programs end at once.
type quick struct{ stuck }

func (q *quick) Run(context.Context, sandbox.Cmd) (sandbox.Result, error) {
	return sandbox.Result{Status: sandbox.StatusExited}, nil
}

func boxOf(sb sandbox.Sandbox) *Box {
	return New(&Options{Make: func(context.Context) (sandbox.Sandbox, error) { return sb, nil }})
}

func TestAProgramThatOutlivesItsEndCostsItsSandbox(t *testing.T) {
	run := func(ctx context.Context, b *Box, limit time.Duration) (sandbox.Result, error) {
		return b.Run(ctx, sandbox.Cmd{Timeout: limit})
	}
	for name, c := range map[string]struct {
		do     func(context.Context, *Box) (sandbox.Result, error)
		status sandbox.Status
		code   int
		after  time.Duration
	}{
		"its limit": {func(ctx context.Context, b *Box) (sandbox.Result, error) {
			return run(ctx, b, time.Minute)
		}, sandbox.StatusTimedOut, 124, time.Minute + overdue},
		"its caller's end": {func(ctx context.Context, b *Box) (sandbox.Result, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return run(ctx, b, time.Minute)
		}, sandbox.StatusCancelled, 137, time.Second + overdue},
		"the limit of a started one": {func(ctx context.Context, b *Box) (sandbox.Result, error) {
			p, err := b.Start(ctx, sandbox.Cmd{Timeout: time.Minute})
			require.NoError(t, err)
			return p.Wait(ctx)
		}, sandbox.StatusTimedOut, 124, time.Minute + overdue},
		"the kill of a started one": {func(ctx context.Context, b *Box) (sandbox.Result, error) {
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
				left, err := b.Peek(t.Context())
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

// renewed is a sandbox that is restarted now and then.
type renewed struct {
	quick
	generation uint64
}

func (r *renewed) Generation(context.Context) (uint64, error) { return r.generation, nil }

// TestASandboxThatWasStartedAgainIsPreparedAgain: the restart has removed its preparation and its
// network.
func TestASandboxThatWasStartedAgainIsPreparedAgain(t *testing.T) {
	sb := &renewed{quick: quick{stuck{removed: make(chan struct{})}}}
	b := boxOf(sb)
	var did []string
	require.NoError(t, b.Fit(t.Context(), Fitting{
		Prepare: func(context.Context, sandbox.Sandbox) error { did = append(did, "prepare"); return nil },
		Left:    func(sandbox.Sandbox) { did = append(did, "left") },
	}))
	for range 2 {
		for range 2 {
			_, err := b.Run(t.Context(), sandbox.Cmd{})
			require.NoError(t, err)
		}
		sb.generation++
	}
	assert.Equal(t, []string{"prepare", "left", "prepare"}, did)
}

// TestAGuardDoesNotCountTheTimeInWhichProgramsStandStill.
func TestAGuardDoesNotCountTheTimeInWhichProgramsStandStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &stuck{removed: make(chan struct{})}
		b := boxOf(sb)
		p, err := b.Start(t.Context(), sandbox.Cmd{Timeout: time.Second})
		require.NoError(t, err)
		time.Sleep(time.Second / 2)
		b.still.begin()
		b.still.begin() // two snapshots, one during the other
		time.Sleep(time.Hour)
		b.still.end()
		time.Sleep(time.Hour)
		b.still.end()
		b.still.end()
		time.Sleep(overdue)
		select {
		case <-sb.removed:
			t.Fatal("the sandbox was removed too early")
		default:
		}
		res, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusTimedOut, res.Status)
		assert.LessOrEqual(t, b.still.lasted(), 2*time.Hour)
	})
}

// TestAGuardDoesNotCountAPauseOfTheSession, whichever process made it.
func TestAGuardDoesNotCountAPauseOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &stuck{removed: make(chan struct{})}
		began := time.Now()
		paused := func() time.Duration { return max(0, min(time.Since(began)-time.Second/2, time.Hour)) } // after half a second, for an hour
		b := New(&Options{Make: func(context.Context) (sandbox.Sandbox, error) { return sb, nil }, Stood: paused})
		p, err := b.Start(t.Context(), sandbox.Cmd{Timeout: time.Second})
		require.NoError(t, err)
		time.Sleep(time.Hour + overdue)
		select {
		case <-sb.removed:
			t.Fatal("the sandbox was removed too early")
		default:
		}
		res, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusTimedOut, res.Status)
	})
}
