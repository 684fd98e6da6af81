package box

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool"
)

// standing is a sandbox that can be paused.
type standing struct {
	quick
	did    []string
	noWay  error // of Pause
	isLost bool
}

func (s *standing) Pause(context.Context) error {
	s.did = append(s.did, "pause")
	return s.noWay
}

func (s *standing) Resume(context.Context) error {
	s.did = append(s.did, "resume")
	if s.isLost {
		return sandbox.ErrLost
	}
	return s.noWay
}

func none(context.Context) (sandbox.Sandbox, error) { return nil, sandbox.ErrNotFound }

func asItIs(err error) (bool, error) { return false, err }

func TestAPausedBoxRunsNothingAndMakesNoSandbox(t *testing.T) {
	sb := &standing{quick: quick{stuck{removed: make(chan struct{})}}}
	var paused error
	made := 0
	b := New(&Options{
		Make:  func(context.Context) (sandbox.Sandbox, error) { made++; return sb, nil },
		Awake: func() error { return paused },
	})
	record := func(want bool) func(bool) error {
		return func(there bool) error {
			assert.Equal(t, want, there)
			paused = tool.Errorf(tool.Unavailable, "paused")
			return nil
		}
	}
	wake := func() error { paused = nil; return nil }
	require.NoError(t, b.Stand(t.Context(), none, record(false), nil))
	_, err := b.Run(t.Context(), sandbox.Cmd{})
	require.ErrorContains(t, err, "paused")
	assert.Zero(t, made)
	there, err := b.GoOn(t.Context(), none, wake, asItIs)
	require.NoError(t, err)
	assert.False(t, there)

	_, err = b.Run(t.Context(), sandbox.Cmd{})
	require.NoError(t, err)
	require.NoError(t, b.Stand(t.Context(), none, record(true), nil))
	for _, err := range []error{
		func() error { _, err := b.Run(t.Context(), sandbox.Cmd{}); return err }(),
		func() error { _, err := b.Start(t.Context(), sandbox.Cmd{}); return err }(),
		func() error { _, err := b.Detached(t.Context()); return err }(),
	} {
		require.ErrorContains(t, err, "paused")
	}
	there, err = b.GoOn(t.Context(), none, wake, asItIs)
	require.NoError(t, err)
	assert.True(t, there)
	assert.Equal(t, []string{"pause", "resume"}, sb.did)

	sb.isLost = true
	there, err = b.GoOn(t.Context(), none, wake, asItIs)
	require.NoError(t, err)
	assert.False(t, there, "one that is lost is given up")
	<-sb.removed
}

func TestABoxThatCanNotBePausedSaysSo(t *testing.T) {
	for name, sb := range map[string]sandbox.Sandbox{
		"no way to it": &quick{stuck{removed: make(chan struct{})}},
		"no freezer":   &standing{noWay: sandbox.ErrUnsupported},
	} {
		b := boxOf(sb)
		_, err := b.Get(t.Context())
		require.NoError(t, err)
		recorded := false
		err = b.Stand(t.Context(), none, func(bool) error { recorded = true; return nil }, func() { recorded = false })
		assert.Equal(t, tool.Unsupported, tool.KindOf(err), "%s: %v", name, err)
		assert.False(t, recorded)
	}
}

// asleep returns a Box over a sandbox in which only its removal ends a program. Its session is
// paused while isPaused is true.
func asleep(sb sandbox.Sandbox) (b *Box, isPaused *atomic.Bool) {
	isPaused = new(atomic.Bool)
	return New(&Options{
		Make: func(context.Context) (sandbox.Sandbox, error) { return sb, nil },
		Awake: func() error {
			if isPaused.Load() {
				return tool.Errorf(tool.Unavailable, "paused")
			}
			return nil
		},
	}), isPaused
}

// TestASandboxThatStandsStillIsNotRemoved, though its program is overdue when it is paused.
func TestASandboxThatStandsStillIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &stuck{removed: make(chan struct{})}
		b, isPaused := asleep(sb)
		p, err := b.Start(t.Context(), sandbox.Cmd{Timeout: time.Second})
		require.NoError(t, err)
		isPaused.Store(true)
		assert.False(t, b.drop(t.Context(), sb))
		time.Sleep(time.Hour)
		synctest.Wait()
		select {
		case <-sb.removed:
			t.Fatal("it was removed while the session was paused")
		default:
		}
		isPaused.Store(false)
		res, err := p.Wait(t.Context())
		require.NoError(t, err)
		assert.Equal(t, sandbox.StatusTimedOut, res.Status)
	})
}

// TestCallsInASandboxThatIsLetGoAreCancelled, and nothing pauses or resumes it any more.
func TestCallsInASandboxThatIsLetGoAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &stuck{removed: make(chan struct{})}
		b, isPaused := asleep(sb)
		begun := make(chan sandbox.Result, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			res, err := b.Run(ctx, sandbox.Cmd{})
			assert.NoError(t, err)
			begun <- res
		}()
		synctest.Wait()
		isPaused.Store(true)
		cancel()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, begun, "nothing ends a paused program")
		require.NoError(t, b.LetGo(func(sb sandbox.Sandbox) error { return sb.Close(t.Context()) }))
		res := <-begun
		assert.Equal(t, sandbox.StatusCancelled, res.Status)
		assert.Empty(t, res.Notices)
		left, err := b.Peek(t.Context())
		require.NoError(t, err)
		assert.Nil(t, left)
		isPaused.Store(false)
		assert.Equal(t, tool.Unavailable, tool.KindOf(b.Stand(t.Context(), none, nil, nil)))
		_, err = b.GoOn(t.Context(), none, nil, nil)
		assert.Equal(t, tool.Unavailable, tool.KindOf(err))
	})
}

// slow is a sandbox whose thaw lasts until may is closed.
type slow struct {
	stuck
	may chan struct{}
}

func (s *slow) Pause(context.Context) error  { return nil }
func (s *slow) Resume(context.Context) error { <-s.may; return nil }

// TestASlowThawCostsNoSandbox, though a program is overdue when it begins.
func TestASlowThawCostsNoSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sb := &slow{stuck{removed: make(chan struct{})}, make(chan struct{})}
		b, isPaused := asleep(sb)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = b.Run(ctx, sandbox.Cmd{}) }()
		synctest.Wait()
		require.NoError(t, b.Stand(t.Context(), none, func(bool) error { isPaused.Store(true); return nil }, nil))
		cancel() // its client leaves
		synctest.Wait()
		resumed := make(chan error, 1)
		go func() {
			_, err := b.GoOn(t.Context(), none, func() error { isPaused.Store(false); return nil }, asItIs)
			resumed <- err
		}()
		time.Sleep(2 * overdue)
		close(sb.may)
		require.NoError(t, <-resumed)
		synctest.Wait()
		select {
		case <-sb.removed:
			t.Fatal("it was removed as soon as it went on")
		default:
		}
		require.NoError(t, b.Close(t.Context()))
	})
}

// TestAResumeThatFailsByItsAnswerIsMadeOnceMore, because otherwise running programs would have no
// time limits.
func TestAResumeThatFailsByItsAnswerIsMadeOnceMore(t *testing.T) {
	sb := &standing{quick: quick{stuck{removed: make(chan struct{})}}}
	b, _ := asleep(sb)
	_, err := b.Get(t.Context())
	require.NoError(t, err)
	sb.noWay = errors.New("the answer was lost")
	there, err := b.GoOn(t.Context(), none, func() error { return nil }, func(error) (bool, error) { sb.noWay = nil; return true, nil })
	require.NoError(t, err)
	assert.True(t, there)
	assert.Equal(t, []string{"resume", "resume"}, sb.did)
}

// TestAPauseWhoseRecordFailsIsTakenBack, because the record may have been written all the same.
func TestAPauseWhoseRecordFailsIsTakenBack(t *testing.T) {
	b, _ := asleep(&standing{})
	undone := false
	require.Error(t, b.Stand(t.Context(), none, func(bool) error { return errors.New("the disk is slow") }, func() { undone = true }))
	assert.True(t, undone)
}

func TestOnlyWhatStandsStillIsLetGo(t *testing.T) {
	sb := &quick{stuck{removed: make(chan struct{})}}
	b, _ := asleep(sb)
	_, err := b.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.LetGo(func(sandbox.Sandbox) error { t.Error("it was"); return nil }))
	left, err := b.Peek(t.Context())
	require.NoError(t, err)
	assert.NotNil(t, left)
}

// TestAResumeThatFailsSaysWhatItIs uses its caller's findings; no other call sees the resume half
// done.
func TestAResumeThatFailsSaysWhatItIs(t *testing.T) {
	fault := errors.New("the freezer is busy")
	sb := &standing{quick: quick{stuck{removed: make(chan struct{})}}}
	b, isPaused := asleep(sb)
	_, err := b.Get(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Stand(t.Context(), none, func(bool) error { isPaused.Store(true); return nil }, nil))
	sb.noWay = fault
	held := func() bool { return b.mu.Held() }
	_, err = b.GoOn(t.Context(), none,
		func() error { assert.True(t, held()); isPaused.Store(false); return nil },
		func(err error) (bool, error) { assert.True(t, held()); isPaused.Store(true); return false, err })
	require.Error(t, err)
	left, peekErr := b.Peek(t.Context())
	require.NoError(t, peekErr)
	assert.NotNil(t, left, "it is not lost")
	there, err := b.GoOn(t.Context(), none, func() error { return nil }, func(error) (bool, error) { return true, nil })
	require.NoError(t, err, "it runs all the same")
	assert.True(t, there)
}

// ended is a sandbox that counts how often its programs are ended.
type ended struct {
	quick
	times int
}

func (e *ended) EndAll(context.Context, sandbox.Status) error { e.times++; return nil }

// TestTheDiskWatchLeavesAPausedSessionAlone, since nobody would read its result.
func TestTheDiskWatchLeavesAPausedSessionAlone(t *testing.T) {
	sb := &ended{}
	b, isPaused := asleep(sb)
	_, err := b.Get(t.Context())
	require.NoError(t, err)
	w := &DiskWatch{Box: b}
	isPaused.Store(true)
	w.endPrograms(t.Context())
	assert.Zero(t, sb.times)
	isPaused.Store(false)
	w.endPrograms(t.Context())
	assert.Equal(t, 1, sb.times)
}
