package mcptask

import (
	"slices"
	"sync"
	"time"
)

// grace is the time in which a fetched result can be fetched again, because the answer may not
// reach its client. A new result that needs the space ends it.
const grace = time.Minute

// client is the state of one client. The lock of its Tasks guards it.
type client struct {
	tasks map[string]*task
	ended []*task // ended tasks, the earliest first
	bytes int     // of their results
	gone  bool    // keep nothing any more

	work sync.WaitGroup // tasks that haven't ended
}

// room reports whether one more task may begin, and frees results if necessary.
func (c *client) room(o *Options) bool {
	return len(c.tasks)-len(c.ended) < o.MaxOpen && c.shrink(o.MaxKept-1, o.MaxBytes, time.Now().Add(-grace))
}

// shrink forgets results that were fetched before until, the oldest first, down to that number of
// tasks and bytes. If that isn't possible, it forgets none and returns false.
func (c *client) shrink(tasks, bytes int, until time.Time) bool {
	var spare []*task
	count, size := len(c.tasks), c.bytes
	for _, k := range c.ended {
		if count <= tasks && size <= bytes {
			break
		}
		if !k.fetched.IsZero() && !k.fetched.After(until) {
			spare = append(spare, k)
			count, size = count-1, size-k.size
		}
	}
	if count > tasks || size > bytes {
		return false
	}
	for _, k := range spare {
		c.forget(k)
	}
	return true
}

// settle keeps the result of a task that has just ended, and reports whether it could.
func (c *client) settle(k *task, result int, most int) bool {
	now := time.Now()
	fits := c.shrink(len(c.tasks), most-result, now.Add(-grace)) || c.shrink(len(c.tasks), most-result, now)
	if fits {
		k.size = result
		c.bytes += result
	}
	c.ended = append(c.ended, k)
	return fits
}

// forget drops an ended task and all references to it.
func (c *client) forget(k *task) {
	i := slices.Index(c.ended, k)
	if i < 0 {
		return
	}
	c.ended = slices.Delete(c.ended, i, i+1)
	delete(c.tasks, k.id)
	c.bytes -= k.size
	k.result, k.forgotten = nil, true
	if k.expiry != nil {
		k.expiry.Stop()
	}
}
