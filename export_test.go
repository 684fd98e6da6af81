package wisbox

// RuntimeDir is where a manager's holders listen.
func (m *Manager) RuntimeDir() string { return m.opts.Podman.RuntimeDir }

// ReadReady waits for a holder's first line.
var ReadReady = readReady
