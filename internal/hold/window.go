package hold

import "sync"

// window counts the bytes that one side may still send to the other.
type window struct {
	mu     sync.Mutex
	more   *sync.Cond
	room   int
	closed bool
}

func newWindow(room int) *window {
	w := &window{room: room}
	w.more = sync.NewCond(&w.mu)
	return w
}

// take waits for room and takes at most n bytes of it; 0 means that the window is closed.
func (w *window) take(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.room == 0 && !w.closed {
		w.more.Wait()
	}
	if w.closed {
		return 0
	}
	n = min(n, w.room)
	w.room -= n
	return n
}

func (w *window) give(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.room += n
	w.more.Signal()
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}
