package agent

import (
	"net"
	"os"
	"sync"
	"time"
)

// stopped returns the error of a read or write that stopped: its owner has closed the connection, or its deadline has
// passed.
func stopped(closed chan struct{}, by *deadline) error {
	if isClosed(closed) {
		return net.ErrClosed
	}
	if isClosed(by.passed()) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// deadline is a point in time that can be moved; its methods may be called at once.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer   // nil without one
	at    chan struct{} // closed when it has passed
}

func newDeadline() deadline { return deadline{at: make(chan struct{})} }

// passed is closed when the deadline has passed. Moving it doesn't wake those who wait already.
func (d *deadline) passed() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.at // it is about to be closed
	}
	d.timer = nil
	over := isClosed(d.at)
	if over {
		d.at = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	at := d.at
	if left := time.Until(t); left > 0 {
		d.timer = time.AfterFunc(left, func() { close(at) })
	} else {
		close(at)
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
