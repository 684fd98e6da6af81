package podman

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestARuntimeIsChosenByTrial: one whose trial takes too long, as on a busy machine, isn't one that fails, and leaves no
// container.
func TestARuntimeIsChosenByTrial(t *testing.T) {
	was := tryTimeout
	t.Cleanup(func() { tryTimeout = was })
	for name, c := range map[string]struct {
		crun, runc string // what a trial does
		want       string
		removed    int
		kept       bool
	}{
		"both work":     {"exit 127", "exit 127", "crun", 0, true},
		"one fails":     {"exit 126", "exit 127", "runc", 0, true},
		"one is slow":   {"exit 126", "exec sleep 1000", "runc", 1, false},
		"the first is":  {"exec sleep 1000", "exit 127", "runc", 1, true},
		"both are":      {"exec sleep 1000", "exec sleep 1000", "crun", 2, false},
		"neither works": {"exit 126", "exit 1", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			tryTimeout = time.Minute
			if strings.Contains(c.crun+c.runc, "sleep") {
				tryTimeout = 2 * time.Second // long enough for a script
			}
			bin, dir := t.TempDir(), t.TempDir()
			removed := filepath.Join(bin, "removed")
			script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *'rm --force'*) echo \"$*\" >>%s; exit;; esac\nif grep -q crun \"$CONTAINERS_CONF\"; then %s; fi\n%s\n", removed, c.crun, c.runc)
			for _, file := range []string{"crun", "runc", "podman"} {
				require.NoError(t, os.WriteFile(filepath.Join(bin, file), []byte(script), 0o755))
			}
			t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
			devices, _ := standInDevices(t)
			s := &service{dir: dir, devices: devices, podman: filepath.Join(bin, "podman"), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
			assert.Equal(t, c.want, s.chooseRuntime(t.Context(), os.Environ()))
			text, _ := os.ReadFile(removed)
			assert.Equal(t, c.removed, strings.Count(string(text), "wisbox-try-"), "%s", text)
			assert.Equal(t, c.kept, s.keptRuntime() != "", "only what was seen to work is kept")
		})
	}
}
