package wisbox

import (
	"testing"
	"time"

	"github.com/wisbox/wisbox/internal/hold"
)

// RuntimeDir is where a manager's holders listen.
func (m *Manager) RuntimeDir() string { return m.opts.Podman.RuntimeDir }

// Holders is where a manager finds and starts the holders of its sessions.
func (m *Manager) Holders() hold.Root { return m.here.holders }

// CacheDir is a manager's state root.
func (m *Manager) CacheDir() string { return m.here.store.Path() }

// SetTakeWait changes how long a holder has to take an operation.
func SetTakeWait(t *testing.T, wait time.Duration) {
	usual := hold.TakeWait
	hold.TakeWait = wait
	t.Cleanup(func() { hold.TakeWait = usual })
}
