package wisbox

import (
	"context"
	"testing"
	"time"
)

// RuntimeDir is where a manager's holders listen.
func (m *Manager) RuntimeDir() string { return m.opts.Podman.RuntimeDir }

// ReadReady waits for a holder's first line.
var ReadReady = readReady

// StartHolder starts a session's holder and waits for its first line.
func (m *Manager) StartHolder(ctx context.Context, name string) error {
	return m.startHolder(ctx, name)
}

// HoldPath names the socket of a session's holder.
func (m *Manager) HoldPath(name string) (string, error) { return m.holdPath(name) }

// CacheDir is a manager's state root.
func (m *Manager) CacheDir() string { return m.store.Path() }

// SetTakeWait changes how long a holder has to take an operation.
func SetTakeWait(t *testing.T, wait time.Duration) {
	usual := takeWait
	takeWait = wait
	t.Cleanup(func() { takeWait = usual })
}
