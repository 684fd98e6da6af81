package wisbox_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/wisbox/wisbox"
)

func TestAHoldersLogHasItsEvaluationsWithoutSecrets(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "state")
	to, err := wisbox.HoldLog(cache, "box")
	require.NoError(t, err)
	log := slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug}))
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("hunter2-hunter2"), 0o600))
	secrets := map[string]wisbox.Secret{"TOKEN": {File: token}}
	s, _, _ := heldBy(t, time.Minute, wisbox.SessionOptions{Secrets: secrets}, wisbox.Options{CacheDir: cache, Logger: log})
	text(t, s, "evaluate_python", `{"code":"len('hunter2-hunter2')"}`)
	raw, err := os.ReadFile(filepath.Join(cache, "sessions", "box", "holder.log"))
	require.NoError(t, err)
	assert.Contains(t, string(raw), "msg=asteval.run")
	assert.Contains(t, string(raw), "code=len('***************')")
}

func TestAHoldersLogIsBounded(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "sessions", "box")
	log, err := wisbox.HoldLog(cache, "box")
	require.NoError(t, err)
	_, err = log.Write([]byte("lost\n"))
	require.Error(t, err, "there is no session yet")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	line := []byte(strings.Repeat("x", 100<<10) + "\n")
	for range 30 {
		_, err := log.Write(line)
		require.NoError(t, err)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		assert.LessOrEqual(t, info.Size(), int64(1<<20), e.Name())
		assert.Equal(t, os.FileMode(0o600), info.Mode(), e.Name())
	}
	_, err = wisbox.HoldLog(cache, "../box")
	assert.Error(t, err)
}
