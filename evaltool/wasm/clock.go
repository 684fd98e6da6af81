package wasm

import (
	"sync/atomic"
	"time"
)

// clock is the time of one run. Unless it is real, it begins at a fixed instant and advances by a millisecond with each
// reading, and by the program's sleeps.
type clock struct {
	real bool
	now  atomic.Int64 // nanoseconds since the epoch
}

// epoch is 2024-01-01T00:00:00Z.
const epoch = 1_704_067_200_000_000_000

func newClock(real bool) *clock {
	c := &clock{real: real}
	c.now.Store(epoch)
	return c
}

func (c *clock) look() int64 {
	if c.real {
		return time.Now().UnixNano()
	}
	return c.now.Add(int64(time.Millisecond))
}

func (c *clock) walltime() (int64, int32) {
	now := c.look()
	return now / int64(time.Second), int32(now % int64(time.Second))
}

func (c *clock) nanotime() int64 { return c.look() }

// slept advances the clock after a sleep.
func (c *clock) slept(d time.Duration) { c.now.Add(int64(d)) }
