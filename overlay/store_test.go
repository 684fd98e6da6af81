package overlay

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wisbox/wisbox/internal/hosttest"
	"github.com/wisbox/wisbox/sandbox"
	"github.com/wisbox/wisbox/tool/answer"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	return newStoreIn(t, t.TempDir())
}

func newStoreIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := OpenStore(filepath.Join(dir, "root"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func create(t *testing.T, s *Store, opts *CreateOptions) *Dir {
	t.Helper()
	d, err := s.Create(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// kept creates a session that is ready, kept and not open.
func kept(t *testing.T, s *Store, opts CreateOptions) {
	t.Helper()
	opts.Kept = true
	d := create(t, s, &opts)
	require.NoError(t, d.SetState(StateReady))
	require.NoError(t, d.Close())
}

func put(t *testing.T, root *os.Root, name, text string) {
	t.Helper()
	require.NoError(t, root.WriteFile(name, []byte(text), 0o644))
}

// empty asserts that the store is empty.
func empty(t *testing.T, s *Store) {
	t.Helper()
	for _, dir := range []string{sessionsDir, trashDir} {
		entries, err := os.ReadDir(filepath.Join(s.path, dir))
		require.NoError(t, err)
		assert.Empty(t, entries, dir)
	}
}

func TestASessionIsADirectoryWithItsParts(t *testing.T) {
	s := newStore(t)
	d := create(t, s, &CreateOptions{ID: "one", Settings: json.RawMessage(`{"image":"x"}`)})
	put(t, d.Workspace(), "a", "x")
	assert.FileExists(t, filepath.Join(d.WorkspacePath(), "a"))
	state := d.State()
	assert.Equal(t, StateOpening, state.Status)
	assert.JSONEq(t, `{"image":"x"}`, string(state.Settings))
	assert.Equal(t, os.Getpid(), state.Owner.PID)
	assert.NotZero(t, state.Owner.Start)
	assert.NotEmpty(t, state.Created.BootID)
}

func TestModesDontDependOnTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o077} {
		old := syscall.Umask(mask)
		s := newStore(t)
		d := create(t, s, &CreateOptions{ID: "one"})
		syscall.Umask(old)
		require.NoError(t, d.AppendLog(1))
		for name, mode := range map[string]os.FileMode{
			"../..": 0o700, "..": 0o700, "": 0o700, "workspace": 0o755, "tmp": 0o700, "snapshots": 0o700, "output": 0o700,
			"session.json": 0o600, "life.lock": 0o600, "log.jsonl": 0o600, "../../root.json": 0o600,
		} {
			info, err := os.Stat(filepath.Join(s.path, "sessions/one", name))
			require.NoError(t, err)
			assert.Equal(t, mode, info.Mode().Perm(), name)
		}
	}
}

func TestTheWorkspaceHasItsOwner(t *testing.T) {
	owner := &sandbox.Owner{UID: os.Getuid(), GID: os.Getgid()}
	if os.Getuid() == 0 {
		owner = &sandbox.Owner{UID: 54321, GID: 54322}
	}
	d := create(t, newStore(t), &CreateOptions{Owner: owner})
	info, err := d.Workspace().Stat(".")
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, sandbox.Owner{UID: int(st.Uid), GID: int(st.Gid)}, *owner)
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"-a", "A", "a b", "a/b", "..", "a.b", "a=b", "é", string(make([]byte, 64))} {
		assert.Equal(t, answer.Invalid, answer.KindOf(CheckID(bad)), bad)
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,62}`).Draw(t, "id")
		require.NoError(t, CheckID(id))
		require.Equal(t, id, trashedID(id+"."+newID()))
	})
	require.NoError(t, CheckID(newID()))
}

func TestOfManyThatCreateOneNameExactlyOneSucceeds(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for i := range errs {
		wg.Go(func() {
			d, err := s.Create(context.Background(), &CreateOptions{ID: "name"})
			if errs[i] = err; err == nil {
				_ = d.Close()
			}
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		assert.Equal(t, answer.Exists, answer.KindOf(err))
		assert.ErrorContains(t, err, `"name"`)
	}
	assert.Equal(t, 1, won)
}

func TestBadCreationsLeaveNothing(t *testing.T) {
	s := newStore(t)
	_, err := s.Create(t.Context(), &CreateOptions{ID: "Bad"})
	assert.Equal(t, answer.Invalid, answer.KindOf(err))
	_, err = s.Create(t.Context(), &CreateOptions{Settings: json.RawMessage(`{`)})
	assert.Equal(t, answer.Invalid, answer.KindOf(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Create(ctx, nil)
	assert.ErrorIs(t, err, context.Canceled)
	empty(t, s)
}

func TestTwoProcessesAgreeOnTheRootsID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "root")
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			s, err := OpenStore(path)
			if assert.NoError(t, err) {
				ids[i] = s.ID()
				_ = s.Close()
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		assert.Equal(t, ids[0], id)
		assert.NoError(t, CheckID(id))
	}
}

func TestTheDefaultRootFollowsTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("WISBOX_CACHE", "")
	t.Setenv("WEAKINCENTIVES_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", dir+"/xdg")
	for _, c := range []struct{ name, value, want string }{
		{"XDG_CACHE_HOME", dir + "/xdg", dir + "/xdg/wisbox"},
		{"WEAKINCENTIVES_CACHE", dir + "/b", dir + "/b"},
		{"WISBOX_CACHE", dir + "/a", dir + "/a"},
	} {
		t.Setenv(c.name, c.value)
		got, err := DefaultRoot()
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}

func TestUnsafeStateRootsAreRefused(t *testing.T) {
	dir := t.TempDir()
	link, open, file := filepath.Join(dir, "link"), filepath.Join(dir, "open"), filepath.Join(dir, "file")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.NoError(t, os.MkdirAll(filepath.Join(open, "others"), 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{link, open, file} {
		_, err := OpenStore(path)
		require.Error(t, err, path)
		assert.NotContains(t, err.Error(), dir)
		if path != file {
			assert.Equal(t, answer.Permission, answer.KindOf(err), path)
		}
	}
	info, err := os.Stat(open)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "a directory that others use keeps its mode")
}

func TestAnotherUsersStateRootIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	dir := t.TempDir()
	require.NoError(t, os.Chown(dir, 54321, 54321))
	_, err := OpenStore(dir)
	assert.Equal(t, answer.Permission, answer.KindOf(err))
}

func TestAnEmptyOrFormerRootIsClosedToOthers(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		require.NoError(t, os.Chmod(dir, 0o755))
		s, err := OpenStore(dir)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		info, err := os.Stat(dir)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
}

func TestADamagedSessionIsLostAndHurtsNoOther(t *testing.T) {
	s := newStore(t)
	for _, id := range []string{"cut", "good", "none", "other", "zero"} {
		kept(t, s, CreateOptions{ID: id})
	}
	file := func(id string) string { return filepath.Join(s.path, "sessions", id, "session.json") }
	raw, err := os.ReadFile(file("cut"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file("cut"), raw[:len(raw)/2], 0o600))
	require.NoError(t, os.WriteFile(file("zero"), nil, 0o600))
	require.NoError(t, os.WriteFile(file("other"), raw, 0o600))
	require.NoError(t, os.Remove(file("none")))
	require.NoError(t, os.WriteFile(filepath.Join(s.path, "sessions/none/workspace/f"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.path, "sessions/stray"), nil, 0o600))

	_, err = s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	entries, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 6)
	for _, e := range entries {
		if e.ID == "good" {
			assert.Equal(t, StateReady, e.State.Status)
			assert.Empty(t, e.Problem)
			continue
		}
		assert.Equal(t, StateLost, e.State.Status, e.ID)
		assert.NotEmpty(t, e.Problem)
		_, err := s.Open(t.Context(), e.ID)
		assert.Equal(t, answer.Unavailable, answer.KindOf(err), e.ID)
		assert.NoError(t, s.Remove(t.Context(), e.ID), e.ID)
	}
	d, err := s.Open(t.Context(), "good")
	require.NoError(t, err)
	require.NoError(t, d.Close())
}

func TestANewerSessionIsLeftAlone(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "newer", TTL: time.Nanosecond})
	path := filepath.Join(s.path, "sessions/newer/session.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"schema":99,"id":"newer","state":"ready","hologram":1}`), 0o600))
	_, err := s.Open(t.Context(), "newer")
	assert.Equal(t, answer.Unsupported, answer.KindOf(err))
	swept, err := s.Sweep(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, swept)
}

func TestUnknownFieldsOfARecordAreIgnored(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "a"})
	path := filepath.Join(s.path, "sessions/a/session.json")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	raw = append([]byte(`{"extra":[1],`), raw[1:]...)
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	d, err := s.Open(t.Context(), "a")
	require.NoError(t, err)
	assert.NoError(t, d.Close())
}

func TestTheListSaysWhoIsInUse(t *testing.T) {
	s := newStore(t)
	kept(t, s, CreateOptions{ID: "free"})
	d := create(t, s, &CreateOptions{ID: "used"})
	entries, err := s.List(t.Context())
	require.NoError(t, err)
	require.Len(t, entries, 2)
	assert.False(t, entries[0].InUse)
	assert.True(t, entries[1].InUse)
	assert.Equal(t, d.ID(), entries[1].ID)
}

func TestAReadOnlyStateRootIsAnErrorThatSaysSo(t *testing.T) {
	if hosttest.AsNobody(t) {
		return
	}
	dir := filepath.Join(t.TempDir(), "parent")
	require.NoError(t, os.Mkdir(dir, 0o500))
	_, err := OpenStore(filepath.Join(dir, "root"))
	assert.Equal(t, answer.Permission, answer.KindOf(err))
}

func TestTheReserveIsATwentiethAtMost2GiB(t *testing.T) {
	const gib = 1 << 30
	assert.NoError(t, checkReserve(2*gib, 1000*gib))
	assert.Equal(t, answer.NoSpace, answer.KindOf(checkReserve(2*gib-1, 1000*gib)))
	assert.NoError(t, checkReserve(gib/2, 10*gib))
	assert.Equal(t, answer.NoSpace, answer.KindOf(checkReserve(gib/2-1, 10*gib)))
	assert.NoError(t, newStore(t).Reserve(t.Context()))
}
