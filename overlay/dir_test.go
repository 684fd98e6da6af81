package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

func TestASecondClientSeesTheSameSession(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, a.Workspace(), "f", "hello")
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	raw, err := b.Workspace().ReadFile("f")
	require.NoError(t, err)
	assert.Equal(t, "hello", string(raw))
	require.NoError(t, a.SetState(StateReady))
	state, err := b.Reload()
	require.NoError(t, err)
	assert.Equal(t, StateReady, state.Status)
	_, err = s.Open(t.Context(), "unknown")
	assert.Equal(t, answer.NotFound, answer.KindOf(err))
}

func TestARecordThatStaysTheSameIsNotWritten(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Settings: json.RawMessage(`{"a":1}`)})
	require.NoError(t, d.SetState(StateReady))
	inode := func() uint64 {
		info, err := d.dir.Stat(stateFile)
		require.NoError(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	set := func(settings string) {
		require.NoError(t, d.Update(t.Context(), func(s *State) error {
			s.Status, s.Settings = StateReady, json.RawMessage(settings)
			return nil
		}))
	}
	before := inode()
	set(`{ "a": 1 }`)
	assert.Equal(t, before, inode())
	set(`{"a":2}`)
	assert.NotEqual(t, before, inode())
	assert.JSONEq(t, `{"a":2}`, string(d.State().Settings))
}

func TestUpdatesOfManyClientsAllCount(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x", Settings: json.RawMessage("0")})
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	var wg sync.WaitGroup
	for _, d := range []*Dir{a, b, a, b} {
		wg.Go(func() {
			for range 10 {
				assert.NoError(t, d.Update(context.Background(), increment))
			}
		})
	}
	wg.Wait()
	state, err := a.Reload()
	require.NoError(t, err)
	assert.Equal(t, "40", string(state.Settings))
}

func increment(s *State) error {
	var n int
	if err := json.Unmarshal(s.Settings, &n); err != nil {
		return err
	}
	raw, err := json.Marshal(n + 1)
	s.Settings = raw
	return err
}

func TestARefusedUpdateWritesNothing(t *testing.T) {
	d := create(t, newStore(t), nil)
	refused := errors.New("no")
	err := d.Update(t.Context(), func(s *State) error { s.Kept = true; return refused })
	require.ErrorIs(t, err, refused)
	state, err := d.Reload()
	require.NoError(t, err)
	assert.False(t, state.Kept)
}

func TestTheWriteLockIsExclusiveAndEndsWithItsContext(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x"})
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	unlock, err := a.Lock(t.Context())
	require.NoError(t, err)
	for _, d := range []*Dir{a, b} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err := d.Lock(ctx)
		assert.Equal(t, answer.Timeout, answer.KindOf(err))
		cancel()
	}
	unlock()
	unlock()
	unlock, err = b.Lock(t.Context())
	require.NoError(t, err)
	unlock()
}

func TestAWriteLockThatStaysTakenIsBusyAfterItsWait(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x"})
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	unlock, err := a.Lock(t.Context())
	require.NoError(t, err)
	defer unlock()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, err := b.Lock(t.Context())
		assert.Equal(t, answer.Busy, answer.KindOf(err))
		assert.Equal(t, LockWait, time.Since(begin))
	})
}

func TestGoroutinesThatShareADirTakeTheLockInTurn(t *testing.T) {
	d := create(t, newStore(t), nil)
	var wg sync.WaitGroup
	inside, total := 0, 0
	for range 20 {
		wg.Go(func() {
			for range 20 {
				unlock, err := d.Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				inside++
				assert.Equal(t, 1, inside)
				total++
				inside--
				unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 400, total)
}

func TestADeletedWorkspaceIsSaidAndMadeAnew(t *testing.T) {
	d := create(t, newStore(t), &CreateOptions{Kept: true})
	require.NoError(t, d.Check(t.Context()))
	require.NoError(t, os.RemoveAll(d.WorkspacePath()))
	err := d.Check(t.Context())
	assert.Equal(t, answer.Unavailable, answer.KindOf(err))
	assert.ErrorContains(t, err, "reset")
	require.NoError(t, d.Remake(t.Context()))
	require.NoError(t, d.Check(t.Context()))
	put(t, d.Workspace(), "again", "x")
	assert.FileExists(t, filepath.Join(d.WorkspacePath(), "again"))
}

func TestAWorkspaceThatAProgramShutIsOpenedAgain(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, d.Workspace(), "f", "hello")
	opened := func() fs.FileMode {
		info, err := os.Stat(d.WorkspacePath())
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	require.NoError(t, os.Chmod(d.WorkspacePath(), 0))
	require.NoError(t, d.Check(t.Context()))
	assert.Equal(t, fs.FileMode(0o700), opened())
	require.NoError(t, os.Chmod(d.WorkspacePath(), 0o005))
	again, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer again.Close()
	assert.Equal(t, fs.FileMode(0o705), opened())
	raw, err := again.Workspace().ReadFile("f")
	require.NoError(t, err)
	assert.Equal(t, "hello", string(raw))
	require.NoError(t, os.Chmod(d.WorkspacePath(), 0o711))
	require.NoError(t, d.Check(t.Context()))
	assert.Equal(t, fs.FileMode(0o711), opened(), "any other mode is the program's business")
}

func TestALinkInPlaceOfTheWorkspaceIsRefused(t *testing.T) {
	s := newStore(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("x"), 0o600))
	for _, replace := range []func(path string) error{
		func(path string) error { return os.Symlink(outside, path) },
		func(path string) error { return os.Symlink("tmp", path) },
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error { return os.WriteFile(path, nil, 0o644) },
	} {
		d := create(t, s, &CreateOptions{Kept: true})
		require.NoError(t, os.Rename(d.WorkspacePath(), d.WorkspacePath()+"-away"))
		require.NoError(t, replace(d.WorkspacePath()))
		assert.Equal(t, answer.Unavailable, answer.KindOf(d.Check(t.Context())))
		_, err := s.Open(t.Context(), d.ID())
		assert.Equal(t, answer.Unavailable, answer.KindOf(err))
		require.NoError(t, d.Remake(t.Context()))
		require.NoError(t, d.Check(t.Context()))
		entries, err := os.ReadDir(d.WorkspacePath())
		require.NoError(t, err)
		assert.Empty(t, entries)
		require.NoError(t, d.Close())
		require.NoError(t, s.Remove(t.Context(), d.ID()))
	}
	assert.FileExists(t, secret)
}

func TestResetEmptiesTheWorkspaceAndOtherClientsNotice(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x"})
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer b.Close()
	put(t, a.Workspace(), "old", "x")
	require.NoError(t, a.Reset(t.Context()))
	require.NoError(t, a.Check(t.Context()))
	assert.NoFileExists(t, filepath.Join(a.WorkspacePath(), "old"))
	put(t, a.Workspace(), "new", "x")
	assert.Equal(t, answer.Unavailable, answer.KindOf(b.Check(t.Context())))
	require.NoError(t, b.Remake(t.Context()))
	_, err = b.Workspace().Stat("new")
	assert.NoError(t, err, "the workspace that another client made is taken over")
	entries, err := names(s.trash)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestADeletedSessionIsClosed(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x"})
	require.NoError(t, os.RemoveAll(filepath.Join(s.path, "sessions/x")))
	assert.Equal(t, answer.Closed, answer.KindOf(d.Check(t.Context())))
	assert.Equal(t, answer.Closed, answer.KindOf(d.Remake(t.Context())))
	assert.Equal(t, answer.Closed, answer.KindOf(d.Reset(t.Context())))
}

func TestTmpIsEmptiedWhenNobodyElseIsThere(t *testing.T) {
	s := newStore(t)
	a := create(t, s, &CreateOptions{ID: "x", Kept: true})
	put(t, a.Tmp(), "half-written", "x")
	b, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	_, err = b.Tmp().Stat("half-written")
	require.NoError(t, err, "it may be the other client's work")
	require.NoError(t, errors.Join(a.Close(), b.Close()))
	c, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Tmp().Stat("half-written")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheLogIsLinesAndMendsACutRecord(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { assert.NoError(t, d.AppendLog(map[string]int{"n": i})) })
	}
	wg.Wait()
	require.NoError(t, d.SyncLog())
	path := filepath.Join(s.path, "sessions/x/log.jsonl")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, raw[:len(raw)-3], 0o600))
	require.NoError(t, d.Close())
	assert.Equal(t, answer.Closed, answer.KindOf(d.AppendLog(1)))

	d, err = s.Open(t.Context(), "x")
	require.NoError(t, err)
	defer d.Close()
	require.NoError(t, d.AppendLog(map[string]string{"last": "x"}))
	raw, err = os.ReadFile(path)
	require.NoError(t, err)
	whole := 0
	for line := range strings.Lines(string(raw)) {
		if json.Valid([]byte(line)) {
			whole++
		}
	}
	assert.Equal(t, 50, whole)
}

func TestUseIsNoted(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "x", Kept: true, Idle: 10 * time.Nanosecond})
	first := d.State().LastUsed
	d.Touch()
	assert.Greater(t, d.State().LastUsed.Boot, first.Boot)
	touched := d.State().LastUsed
	require.NoError(t, d.Close())
	state, err := s.readState("x")
	require.NoError(t, err)
	assert.Greater(t, state.LastUsed.Boot, touched.Boot)
}
