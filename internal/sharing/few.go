package sharing

import "sync"

// Few keeps a limited number of values by key until it is emptied. Its methods may be called
// concurrently.
type Few[K comparable, V any] struct {
	// Max is the maximum number of keys.
	Max int

	mu      sync.Mutex
	all     map[K]*V // nil for a reserved key
	emptied bool
}

// Reserve reserves a place for a key. It returns false if the key already has a place, no place
// is left, or f was emptied.
func (f *Few[K, V]) Reserve(key K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.all[key]; ok || f.emptied || len(f.all) >= f.Max {
		return false
	}
	if f.all == nil {
		f.all = map[K]*V{}
	}
	f.all[key] = nil
	return true
}

// Put stores the value of a reserved key. It returns false if the key was dropped or f was emptied;
// the caller then keeps the value.
func (f *Few[K, V]) Put(key K, value V) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.all[key]; !ok {
		return false
	}
	f.all[key] = &value
	return true
}

// Drop frees the place of a key. It returns the value, if there is one.
func (f *Few[K, V]) Drop(key K) (value V, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.all[key]
	delete(f.all, key)
	if kept == nil {
		return value, false
	}
	return *kept, true
}

// Empty returns all values. f accepts no values after that.
func (f *Few[K, V]) Empty() []V {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.emptied = true
	var values []V
	for _, value := range f.all {
		if value != nil {
			values = append(values, *value)
		}
	}
	f.all = nil
	return values
}
