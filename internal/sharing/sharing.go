// Package sharing provides a map of values that end with their last user, and a map of values
// that one user keeps until it ends.
package sharing

import "sync"

// Map holds shared values by key. The zero value works. Its methods may be called concurrently.
type Map[K, V comparable] struct {
	mu  sync.Mutex
	all map[K]*shared[V]
}

type shared[V comparable] struct {
	value V
	users int
}

// Use returns the value of a key, and creates it if it isn't in use. Each Use needs a Release.
func (m *Map[K, V]) Use(key K, create func() (V, error)) (V, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.all[key]; ok {
		s.users++
		return s.value, nil
	}
	value, err := create()
	if err != nil {
		return value, err
	}
	if m.all == nil {
		m.all = map[K]*shared[V]{}
	}
	m.all[key] = &shared[V]{value, 1}
	return value, nil
}

// Release ends one use of a value, and reports whether it was the last. The caller must then end
// the value.
func (m *Map[K, V]) Release(key K, value V) (last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.all[key]
	if !ok || s.value != value {
		return false
	}
	if s.users--; s.users > 0 {
		return false
	}
	delete(m.all, key)
	return true
}

// Values returns all values in use.
func (m *Map[K, V]) Values() []V {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]V, 0, len(m.all))
	for _, s := range m.all {
		all = append(all, s.value)
	}
	return all
}
