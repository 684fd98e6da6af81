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
	all    *Tasks
	tasks  map[string]*task
	ended  []*task // ended tasks, the earliest first
	bytes  int     // of their results
	params int     // bytes of the params of the others
	gone   bool    // keep nothing any more

	work sync.WaitGroup // tasks that haven't ended
}

// room reports whether one more task may begin, whose params have size bytes, and frees results if necessary.
func (c *client) room(size int) bool {
	o := &c.all.opts
	return len(c.tasks)-len(c.ended) < o.MaxOpen && c.params+size <= o.MaxBytes && c.shrink(o.MaxKept-1, o.MaxBytes, time.Now().Add(-grace)) && c.mayHold(size)
}

// mayHold reports whether others leave room for n more bytes.
func (c *client) mayHold(n int) bool {
	left := c.all.opts.MaxAll - c.all.held
	return n == 0 || n <= left && c.bytes+c.params+n <= left
}

// hold adds n bytes to what the client holds, or takes them away.
func (c *client) hold(of *int, n int) {
	*of += n
	c.all.held += n
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
	c.hold(&c.params, -k.params)
	k.params = 0
	fits := c.shrink(len(c.tasks), most-result, now.Add(-grace)) || c.shrink(len(c.tasks), most-result, now)
	if fits = fits && c.mayHold(result); fits {
		k.size = result
		c.hold(&c.bytes, result)
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
	c.hold(&c.bytes, -k.size)
	k.result, k.forgotten = nil, true
	if k.expiry != nil {
		k.expiry.Stop()
	}
}
