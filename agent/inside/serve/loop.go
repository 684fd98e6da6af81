package serve

import (
	"container/heap"
	"time"

	"golang.org/x/sys/unix"
)

// loop waits for descriptors and for points in time.
type loop struct {
	epoll    int
	handlers map[int]func()
	timers   timers
	still    time.Time // time at which the timers were stopped; zero if they run
	events   [64]unix.EpollEvent
}

func newLoop() (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	return &loop{epoll: fd, handlers: map[int]func(){}}, err
}

// watch calls f whenever a descriptor is readable or writable.
func (l *loop) watch(fd int, events uint32, f func()) {
	if unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}) == nil {
		l.handlers[fd] = f
	}
}

func (l *loop) unwatch(fd int) {
	if l.handlers[fd] != nil {
		delete(l.handlers, fd)
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// turn waits for the next events, unless there is more to do, and calls their handlers and then the due timers.
func (l *loop) turn(more bool) {
	patience := l.patience()
	if more {
		patience = 0
	}
	n, _ := unix.EpollWait(l.epoll, l.events[:], patience)
	for i := range max(n, 0) {
		if f := l.handlers[int(l.events[i].Fd)]; f != nil {
			f()
		}
	}
	for l.still.IsZero() && len(l.timers) > 0 && !l.timers[0].due.After(time.Now()) {
		heap.Pop(&l.timers).(*timer).f()
	}
}

// patience returns the wait for the next timer in milliseconds, rounded up; -1 means forever.
func (l *loop) patience() int {
	if len(l.timers) == 0 || !l.still.IsZero() {
		return -1
	}
	left := time.Until(l.timers[0].due)
	return int(max(0, min(left+time.Millisecond-1, time.Hour)) / time.Millisecond)
}

// suspend stops the timers.
func (l *loop) suspend() {
	if l.still.IsZero() {
		l.still = time.Now()
	}
}

// resume restarts the timers with their remaining time.
func (l *loop) resume() {
	if l.still.IsZero() {
		return
	}
	stood := time.Since(l.still)
	l.still = time.Time{}
	for _, t := range l.timers { // their order stays
		t.due = t.due.Add(stood)
	}
}

// after calls f once, after d.
func (l *loop) after(d time.Duration, f func()) *timer {
	t := &timer{due: time.Now().Add(d), f: f}
	heap.Push(&l.timers, t)
	return t
}

// cancel cancels a timer; it ignores nil and expired timers.
func (l *loop) cancel(t *timer) {
	if t != nil && t.at >= 0 {
		heap.Remove(&l.timers, t.at)
	}
}

type timer struct {
	due time.Time
	f   func()
	at  int // its index, -1 when it is not among the timers
}

type timers []*timer

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due.Before(t[j].due) }
func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

func (t *timers) Push(x any) {
	one := x.(*timer)
	one.at = len(*t)
	*t = append(*t, one)
}

func (t *timers) Pop() any {
	old := *t
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*t, last.at = old[:len(old)-1], -1
	return last
}
