package wisbox

import "context"

// RuntimeDir is where a manager's holders listen.
func (m *Manager) RuntimeDir() string { return m.opts.Podman.RuntimeDir }

// ReadReady waits for a holder's first line.
var ReadReady = readReady

// StartHolder starts a session's holder and waits for its first line.
func (m *Manager) StartHolder(ctx context.Context, name string) error {
	return m.startHolder(ctx, name)
}
