package overlay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/tool/answer"
)

func TestRemoveDeletesAllAndOnlyOnce(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "x"})
	require.NoError(t, s.Remove(t.Context(), "x"))
	empty(t, s)
	assert.Equal(t, answer.NotFound, answer.KindOf(s.Remove(t.Context(), "x")))
	assert.Equal(t, answer.Invalid, answer.KindOf(s.Remove(t.Context(), "../x")))
	kept(t, s, CreateOptions{ID: "x"})
}

func TestRemoveWaitsForClientsToLeave(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x"})
	done := make(chan error)
	go func() { done <- s.Remove(context.Background(), "x") }()
	require.NoError(t, d.Close())
	require.NoError(t, <-done)
	empty(t, s)
}

func TestASessionInUseIsNotRemoved(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x"})
	assert.Equal(t, answer.Busy, answer.KindOf(s.Remove(t.Context(), "x")))
	assert.NoError(t, d.Check(t.Context()))
	swept, err := s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, swept)
}

func TestMangledTreesAreRemoved(t *testing.T) {
	s := newStoreIn(t, hosttest.InMemory(t))
	d := create(t, s, &CreateOptions{ID: "x"})
	at, err := os.OpenRoot(d.WorkspacePath())
	require.NoError(t, err)
	for range 5_000 {
		require.NoError(t, at.Mkdir("d", 0o755))
		next, err := at.OpenRoot("d")
		require.NoError(t, err)
		_ = at.Close()
		at = next
	}
	_ = at.Close()
	require.NoError(t, d.Workspace().MkdirAll("closed/inner", 0o755))
	put(t, d.Workspace(), "closed/inner/f", "x")
	require.NoError(t, d.Workspace().Chmod("closed/inner", 0))
	require.NoError(t, d.Workspace().Chmod("closed", 0))
	require.NoError(t, d.Workspace().Symlink("/", "out"))
	require.NoError(t, d.Close())
	require.NoError(t, s.Remove(t.Context(), "x"))
	empty(t, s)
}

func TestWhatMustGoFirstKeepsTheFilesWhenItFails(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "x"})
	broken := errors.New("no podman")
	err := s.RemoveWith(t.Context(), "x", func(context.Context, string) error { return broken })
	require.ErrorIs(t, err, broken)
	_, err = s.Open(t.Context(), "x")
	assert.Equal(t, answer.Closed, answer.KindOf(err))
	var asked []string
	swept, err := s.Sweep(t.Context(), &SweepOptions{Before: func(_ context.Context, id string) error {
		asked = append(asked, id)
		assert.DirExists(t, filepath.Join(s.path, "sessions", id, "workspace"))
		return nil
	}})
	require.NoError(t, err)
	assert.Equal(t, []string{"x"}, asked)
	assert.Equal(t, []Swept{{ID: "x", Reason: "its removal was interrupted"}}, swept)
	empty(t, s)
}

func TestASweepTakesWhatNobodyOwnsAndNothingElse(t *testing.T) {
	s := newStore(t)
	open := create(t, s, &CreateOptions{ID: "open"})
	require.NoError(t, create(t, s, &CreateOptions{ID: "ephemeral"}).Close())
	require.NoError(t, create(t, s, &CreateOptions{ID: "unfinished", Kept: true}).Close())
	kept(t, s, CreateOptions{ID: "kept"})
	kept(t, s, CreateOptions{ID: "old", TTL: time.Nanosecond})
	kept(t, s, CreateOptions{ID: "idle", Idle: time.Nanosecond})
	require.NoError(t, os.Mkdir(filepath.Join(s.path, "sessions/half"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(s.path, "trash/gone."+newID()), 0o700))

	planned, err := s.Sweep(t.Context(), &SweepOptions{DryRun: true})
	require.NoError(t, err)
	entries, err := s.List(t.Context())
	require.NoError(t, err)
	assert.Len(t, entries, 7, "a dry run removes nothing")

	swept, err := s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	assert.Equal(t, planned, swept)
	var ids []string
	for _, one := range swept {
		ids = append(ids, one.ID)
		assert.Empty(t, one.Problem)
	}
	assert.ElementsMatch(t, []string{"ephemeral", "unfinished", "old", "idle", "half", "gone"}, ids)
	entries, err = s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.NoError(t, open.Check(t.Context()))
	again, err := s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, again)
}

func TestASweepDoesNotDisturbAMakerAtWork(t *testing.T) {
	s := newStore(t)
	other, err := OpenStore(s.path)
	require.NoError(t, err)
	defer other.Close()
	s.step = func(point string) {
		if strings.HasPrefix(point, "create.") {
			_, err := other.Sweep(context.Background(), nil)
			assert.NoError(t, err)
		}
	}
	d := create(t, s, &CreateOptions{ID: "x"})
	assert.NoError(t, d.Check(t.Context()))
}

func TestClocksThatJumpReapNothingEarly(t *testing.T) {
	const day = 24 * time.Hour
	made := Stamp{At: time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC), BootID: "a", Boot: 100 * time.Hour}
	s := State{Kept: true, TTL: time.Hour, Created: made, LastUsed: made}
	after := func(wall, boot time.Duration, id string) Stamp {
		return Stamp{At: made.At.Add(wall), Boot: boot, BootID: id}
	}
	for name, c := range map[string]struct {
		now     Stamp
		expired bool
	}{
		"same boot, wall a day ahead":        {after(day, made.Boot+time.Minute, "a"), false},
		"same boot, wall a day back":         {after(-day, made.Boot+2*time.Hour, "a"), true},
		"same boot, boot clock a day behind": {after(0, made.Boot-day, "a"), false},
		"rebooted, wall a day ahead":         {after(day, time.Minute, "b"), false},
		"rebooted, wall a day back":          {after(-day, time.Minute, "b"), false},
		"rebooted long ago":                  {after(time.Minute, 2*time.Hour, "b"), true},
		"rebooted, days later":               {after(3*day, time.Minute, "b"), true},
	} {
		_, expired := s.Expired(c.now)
		assert.Equal(t, c.expired, expired, name)
		left, ok := s.Left(c.now)
		assert.True(t, ok)
		assert.Equal(t, c.expired, left <= 0, "%s: a holder would end by %v", name, left)
	}
}

func TestASweepByAClockOfYesterdayOrTomorrowReapsNothing(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "x", TTL: time.Hour, Idle: time.Hour})
	for _, jump := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		for _, boot := range []string{Now().BootID, "another boot"} {
			now := Stamp{At: Now().At.Add(jump), BootID: boot, Boot: time.Minute}
			swept, err := s.Sweep(t.Context(), &SweepOptions{Now: func() Stamp { return now }})
			require.NoError(t, err)
			assert.Empty(t, swept)
		}
	}
}

func TestASessionOfAnEarlierBootOpens(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, d.Workspace(), "f", "x")
	require.NoError(t, d.Update(t.Context(), func(st *State) error {
		st.Status, st.Created.BootID, st.Workspace.BootID, st.Workspace.Dev = StateReady, "old", "old", 1
		return nil
	}))
	require.NoError(t, d.Close())
	d, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Workspace().Stat("f")
	assert.NoError(t, err)
}

// TestAPausedSessionIsNotIdle, but its time to live still ends it.
func TestAPausedSessionIsNotIdle(t *testing.T) {
	at := func(d time.Duration) Stamp { return Stamp{BootID: "b", Boot: d} }
	s := State{Kept: true, Status: StateReady, Idle: time.Minute, TTL: time.Hour, Created: at(0), LastUsed: at(0)}
	_, expired := s.Expired(at(2 * time.Minute))
	assert.True(t, expired)
	s.Paused(at(time.Second), true)
	_, expired = s.Expired(at(2 * time.Minute))
	assert.False(t, expired)
	assert.Equal(t, time.Minute, s.StoodAt(at(time.Minute+time.Second)))
	_, expired = s.Expired(at(time.Hour))
	assert.True(t, expired)
	s.Resumed(at(11 * time.Second))
	s.Paused(at(20*time.Second), false)
	assert.Equal(t, 15*time.Second, s.StoodAt(at(25*time.Second)))
	s.Resumed(at(25 * time.Second))
	assert.Equal(t, StateReady, s.Status)
	assert.Equal(t, 15*time.Second, s.StoodAt(at(time.Hour)))
}

// TestAPausedRecordSaysSinceWhen, also if it was written without.
func TestAPausedRecordSaysSinceWhen(t *testing.T) {
	d := create(t, newStore(t), &CreateOptions{ID: "x", Kept: true})
	require.NoError(t, d.SetState(StatePaused))
	s, err := d.Reload()
	require.NoError(t, err)
	require.NotNil(t, s.Pause)
	assert.True(t, s.Pause.Container)
	require.NoError(t, d.SetState(StateReady))
	s, err = d.Reload()
	require.NoError(t, err)
	assert.Nil(t, s.Pause)
}

// TestCurrentSeesWhatAnotherClientHasWritten.
func TestCurrentSeesWhatAnotherClientHasWritten(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x", Kept: true})
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	for _, status := range []SessionState{StateReady, StatePaused, StateReady} {
		require.NoError(t, a.SetState(status))
		assert.Equal(t, status, b.Current().Status)
		assert.Equal(t, status, b.State().Status)
	}
	require.NoError(t, b.SetState(StatePaused))
	assert.Equal(t, StatePaused, b.Current().Status, "its own writes")
	assert.Equal(t, StatePaused, a.Current().Status)
}
