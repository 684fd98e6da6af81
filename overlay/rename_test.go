package overlay

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/tool/answer"
)

// fileOf reads the file f of a session.
func fileOf(t *testing.T, s *Store, id string) (string, error) {
	t.Helper()
	d, err := s.Open(t.Context(), id)
	if err != nil {
		return "", err
	}
	defer d.Close()
	assert.Equal(t, id, d.State().ID)
	require.NoError(t, d.Update(t.Context(), func(*State) error { return nil }))
	raw, err := d.Workspace().ReadFile("f")
	return string(raw), err
}

func withFile(t *testing.T, s *Store, id string, opts CreateOptions) {
	t.Helper()
	opts.ID = id
	kept(t, s, opts)
	d, err := s.Open(t.Context(), id)
	require.NoError(t, err)
	put(t, d.Workspace(), "f", id)
	require.NoError(t, d.Close())
}

func TestARenamedSessionHasItsFilesAndTheOldNameIsFree(t *testing.T) {
	for name, opts := range map[string]CreateOptions{"plain": {}, "limited": {Disk: 4 << 20, Inodes: 1000}} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			withFile(t, s, "x", opts)
			require.NoError(t, s.Rename(t.Context(), "x", "y", func(_ context.Context, id string) (bool, error) {
				assert.Equal(t, "x", id)
				return false, nil
			}))
			text, err := fileOf(t, s, "y")
			require.NoError(t, err)
			assert.Equal(t, "x", text)
			_, err = s.Open(t.Context(), "x")
			assert.Equal(t, answer.NotFound, answer.KindOf(err))
			kept(t, s, CreateOptions{ID: "x"})
			_, err = s.Sweep(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, s.Remove(t.Context(), "y"))
			require.NoError(t, s.Remove(t.Context(), "x"))
			empty(t, s)
		})
	}
}

func TestASessionThatCanNotBeRenamedStaysAsItIs(t *testing.T) {
	s := newStore(t)
	withFile(t, s, "x", CreateOptions{})
	withFile(t, s, "taken", CreateOptions{})
	ephemeral := create(t, s, &CreateOptions{ID: "ephemeral"})
	require.NoError(t, ephemeral.SetState(StateReady))
	require.NoError(t, ephemeral.Close())
	withFile(t, s, "paused", CreateOptions{})
	d, err := s.Open(t.Context(), "paused")
	require.NoError(t, err)
	require.NoError(t, d.Update(t.Context(), func(s *State) error { s.Paused(Now(), true); return nil }))
	require.NoError(t, d.Close())
	require.NoError(t, os.Mkdir(s.path+"/sessions/lost", 0o700))
	never := func(context.Context, string) (bool, error) { t.Error("asked for its sandbox"); return false, nil }
	for _, c := range []struct {
		id, to string
		want   answer.Kind
	}{
		{"x", "taken", answer.Exists}, {"x", "x", answer.Exists}, {"x", "lost", answer.Exists}, {"x", "Y", answer.Invalid}, {"x", "../y", answer.Invalid},
		{"x", "", answer.Invalid}, {"..", "y", answer.Invalid}, {"nosuch", "y", answer.NotFound}, {"ephemeral", "y", answer.Unsupported},
		{"paused", "y", answer.Unavailable}, {"lost", "y", answer.Unavailable},
	} {
		assert.Equal(t, c.want, answer.KindOf(s.Rename(t.Context(), c.id, c.to, never)), "%s to %s", c.id, c.to)
	}
	refused := errors.New("refused")
	require.ErrorIs(t, s.Rename(t.Context(), "x", "y", func(context.Context, string) (bool, error) { return false, refused }), refused)
	busy(t, s.Rename(t.Context(), "x", "y", func(context.Context, string) (bool, error) { return true, nil }))
	text, err := fileOf(t, s, "x")
	require.NoError(t, err)
	assert.Equal(t, "x", text)
}

func TestASessionThatIsOpenIsNotRenamed(t *testing.T) {
	s := newStore(t)
	withFile(t, s, "x", CreateOptions{})
	d, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	busy(t, s.Rename(t.Context(), "x", "y", nil))
	require.NoError(t, s.Alone("x", func(State) error { t.Error("it is open"); return nil }))
	require.NoError(t, d.Close())
	require.NoError(t, s.Rename(t.Context(), "x", "y", nil))
}

func busy(t *testing.T, err error) {
	t.Helper()
	assert.Equal(t, answer.Busy, answer.KindOf(err))
	assert.ErrorContains(t, err, `session "x" is in use; stop it first: wisbox stop x`)
}

func TestOfManyRenamesToOneNameOneSucceeds(t *testing.T) {
	s := newStore(t)
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids {
		withFile(t, s, id, CreateOptions{})
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { errs[i] = s.Rename(t.Context(), id, "y", nil) })
	}
	all.Wait()
	won := ""
	for i, err := range errs {
		if err == nil {
			assert.Empty(t, won)
			won = ids[i]
			continue
		}
		assert.Equal(t, answer.Exists, answer.KindOf(err))
		text, err := fileOf(t, s, ids[i])
		require.NoError(t, err, "the others stay")
		assert.Equal(t, ids[i], text)
	}
	text, err := fileOf(t, s, "y")
	require.NoError(t, err)
	assert.Equal(t, won, text)
}

func TestARenamerKilledAnywhereLeavesASessionWithOneOfItsNames(t *testing.T) {
	for point, name := range map[string]string{"rename.noted": "x", "rename.renamed": "y"} {
		s := newStore(t)
		withFile(t, s, "x", CreateOptions{})
		crash(t, "rename", s.path, point)
		text, err := fileOf(t, s, name)
		require.NoError(t, err, point)
		assert.Equal(t, "x", text)
		all, err := s.List(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 1)
		assert.Equal(t, name, all[0].ID)
		assert.Equal(t, StateReady, all[0].State.Status)
		require.NoError(t, s.Rename(t.Context(), name, "z", nil))
		_, err = fileOf(t, s, "z")
		require.NoError(t, err)
	}
}
