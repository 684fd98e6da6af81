package apikeys_test

import (
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/tool"
)

func open(t *testing.T, path string, given ...string) *apikeys.Store {
	t.Helper()
	s, err := apikeys.Open(path, given...)
	require.NoError(t, err)
	return s
}

func TestAKeyLetsInUntilItIsRevoked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "keys.json")
	server, cli := open(t, path), open(t, path)
	assert.True(t, server.Empty())
	text, k, err := cli.Create(t.Context(), apikeys.Key{Name: "app", Sandboxes: 3}, "")
	require.NoError(t, err)
	assert.Regexp(t, regexp.MustCompile(`^e2b_[0-9a-f]{40}$`), text, "as clients of E2B want it")
	assert.False(t, server.Empty(), "a server sees what another process added")
	got, ok := server.Check(text)
	require.True(t, ok)
	assert.Equal(t, k.ID, got.ID)
	assert.Equal(t, 3, got.Sandboxes)
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.NotContains(t, string(raw), text[4:], "the file has no key's text")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	second, next, err := cli.Create(t.Context(), apikeys.Key{}, k.ID)
	require.NoError(t, err)
	assert.Equal(t, k.Owner, next.Owner, "one that replaces another has its sandboxes")
	assert.Equal(t, "app", next.Name)
	require.NoError(t, cli.Revoke(t.Context(), k.ID))
	_, ok = server.Check(text)
	assert.False(t, ok)
	_, ok = server.Check(second)
	assert.True(t, ok)
	assert.Equal(t, tool.NotFound, tool.KindOf(cli.Revoke(t.Context(), k.ID)))
	_, _, err = cli.Create(t.Context(), apikeys.Key{}, "nosuch")
	assert.Equal(t, tool.NotFound, tool.KindOf(err))
}

func TestAKeyThatHasExpiredLetsNobodyIn(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "keys.json"))
	text, _, err := s.Create(t.Context(), apikeys.Key{Expires: time.Now().Add(-time.Second)}, "")
	require.NoError(t, err)
	_, ok := s.Check(text)
	assert.False(t, ok)
}

func TestKeysOfTheEnvironment(t *testing.T) {
	path, a, b := filepath.Join(t.TempDir(), "keys.json"), "e2b_0123456789abcdef0123", "e2b_0123456789abcdef0124"
	s := open(t, path, a, b)
	one, ok := s.Check(a)
	require.True(t, ok)
	two, ok := s.Check(b)
	require.True(t, ok)
	assert.NotEqual(t, one.Owner, two.Owner)
	again, _ := open(t, path, a).Check(a)
	assert.Equal(t, one.Owner, again.Owner, "the same after a restart")
	_, err := apikeys.Open(path, "short")
	assert.Equal(t, tool.Invalid, tool.KindOf(err))
}

func TestWrongKeysChangeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	s := open(t, path)
	text, _, err := s.Create(t.Context(), apikeys.Key{}, "")
	require.NoError(t, err)
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	for range 10_000 {
		_, ok := s.Check(text + "0")
		require.False(t, ok)
	}
	_, ok := s.Check(text)
	assert.True(t, ok)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

func TestManyProcessesAddKeysAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, _, err := open(t, path).Create(t.Context(), apikeys.Key{}, "")
			assert.NoError(t, err)
		})
	}
	all.Wait()
	list, err := open(t, path).List()
	require.NoError(t, err)
	assert.Len(t, list, 8)
	for _, k := range list {
		assert.Empty(t, k.Hash)
	}
}

func TestAFileThatIsNoneLetsNobodyIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err := apikeys.Open(path)
	assert.Error(t, err)
}
