package wisbox

// RuntimeDir is where a manager's holders listen.
func (m *Manager) RuntimeDir() string { return m.opts.Podman.RuntimeDir }
