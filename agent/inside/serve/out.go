package serve

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
)

const (
	reopened  = 50 * time.Millisecond // interval for checking a terminal that was closed
	drainSize = 256 << 10             // bytes of the buffer for discarded output
	pipeSize  = 1 << 20               // bytes of a pipe that is read a whole chunk at a time
	// largeChunk is how many bytes of such a pipe go into one frame: half the window, so that the
	// host takes one while the other comes.
	largeChunk = wire.Window / 2
)

// out is one stream from a program: it is passed on up to its limit, and then discarded except for its tail.
type out struct {
	call    *call
	channel wire.Channel
	fd      int   // -1 once it is closed
	forward int64 // bytes still to pass on; -1 means all
	keep    int   // bytes of tail
	window  int   // bytes that the host accepts now
	total   int64
	tail    []byte
	ending  bool // the tree is gone
	rest    int  // bytes that the pipe may still hold then
	polled  bool
	grown   bool
	first   []goal // of a control channel: the output that must precede its message
	seen    bool   // first is set
}

// goal is the position that an output must reach before a message.
type goal struct {
	out   *out
	total int64
}

// connect connects a slot's pipes to its call, and closes unused ones.
func (c *call) connect(fds []int) {
	bounds := c.head.Out
	if len(fds) < len(kernel.Streams) {
		kernel.CloseAll(fds)
		return
	}
	if c.tty {
		kernel.CloseAll(fds[:3])
	} else {
		c.addIn(wire.Stdin, fds[0])
		c.addOut(wire.Stdout, fds[1], bounds[0])
		c.addOut(wire.Stderr, fds[2], bounds[1])
	}
	if len(fds) == 5 {
		c.addControl(fds[3:])
	}
}

func (c *call) addControl(fds []int) {
	var bound [2]int64
	if c.control {
		bound[0] = -1
	}
	c.addIn(wire.CtlIn, fds[0])
	c.addOut(wire.CtlOut, fds[1], bound)
}

// addTerminal connects a terminal to its call, as stdin and stdout.
func (c *call) addTerminal(master int) {
	_ = unix.SetNonblock(master, true)
	if c.ins[wire.Stdin] == nil {
		_, _ = unix.Write(master, endOfFile)
	} else if twin, err := unix.FcntlInt(uintptr(master), unix.F_DUPFD_CLOEXEC, 3); err == nil {
		c.addIn(wire.Stdin, twin)
	}
	c.addOut(wire.Stdout, master, c.head.Out[0])
}

func (c *call) addOut(channel wire.Channel, fd int, bound [2]int64) {
	if c.conn.lost {
		bound = [2]int64{}
	}
	if c.id != 0 {
		c.rings[channel] = &ring{window: wire.Window}
		bound = [2]int64{-1, 0}
	}
	o := &out{call: c, channel: channel, fd: fd, forward: bound[0], keep: int(min(bound[1], wire.MaxFrame)), window: wire.Window}
	c.outs[channel] = o
	o.poll()
}

// closeStreams passes on the remaining data in the pipes of a tree that is gone.
func (c *call) closeStreams() {
	for _, in := range c.ins {
		if in != nil {
			in.close()
		}
	}
	outs := c.outs
	for _, o := range outs {
		if o != nil {
			o.ending, o.rest = true, pipeSize+wire.Chunk
		}
	}
	for _, o := range outs {
		if o != nil {
			o.poll()
		}
	}
	if !c.hasOuts() {
		c.finish()
	}
}

func (c *call) hasOuts() bool { return c.outs != [wire.Channels]*out{} }

func (c *call) finish() {
	if c.conn.server.calls[c] {
		c.conn.server.finish(c)
	}
}

// poll continues a stream: while its program lives whenever it is readable, afterwards at once until its end.
func (o *out) poll() {
	s := o.call.conn.server
	switch {
	case o.fd < 0:
	case o.ending:
		for o.fd >= 0 && o.pump() {
		}
	case !o.polled:
		o.polled = true
		s.watch(o.fd, unix.EPOLLIN, func() { o.pump() })
	}
}

// hold stops watching; it returns false, which pump returns.
func (o *out) hold() bool {
	if o.polled {
		o.polled = false
		o.call.conn.server.unwatch(o.fd)
	}
	return false
}

// pump moves one piece. It returns false if there is nothing more to move now.
func (o *out) pump() bool {
	if o.channel == wire.CtlOut && !o.isNext() {
		return o.hold()
	}
	if o.call.conn.size() > backlog && o.forward != 0 {
		o.call.conn.stall(o)
		return o.hold()
	}
	n, err := o.move()
	switch {
	case n < 0:
		return o.hold()
	case again(err):
		return o.ending && o.close()
	case err != nil && !o.ending: // nobody has the terminal open now
		return o.lookLater()
	case err != nil:
		n = 0
	}
	o.total += int64(n)
	o.rest -= n
	if n == 0 || o.ending && o.rest <= 0 {
		return o.close()
	}
	if n >= wire.Chunk && !o.grown {
		o.grown = true
		_, _ = unix.FcntlInt(uintptr(o.fd), unix.F_SETPIPE_SZ, pipeSize)
	}
	return true
}

func (o *out) move() (int, error) {
	if ring := o.call.rings[o.channel]; ring != nil {
		return o.store(ring)
	}
	if o.forward == 0 {
		return o.throwAway()
	}
	return o.passOn()
}

// isNext first passes on the data that the program's outputs contained when its message was seen. It returns false if
// that isn't possible now.
func (o *out) isNext() bool {
	if !o.seen {
		o.seen, o.first = true, o.first[:0]
		for _, other := range o.call.outs {
			if other != nil && other != o && !o.call.tty {
				o.first = append(o.first, goal{other, other.total + int64(kernel.Pending(other.fd))})
			}
		}
	}
	for _, before := range o.first {
		for before.out.fd >= 0 && before.out.total < before.total {
			if before.out.pump() || before.out.fd < 0 {
				continue
			}
			if conn := o.call.conn; conn.stalled[before.out] {
				conn.stall(o)
			}
			return false
		}
	}
	o.seen = false
	return true
}

// lookLater checks the terminal again later: closing it would hang up its program, which may open it again.
func (o *out) lookLater() bool {
	o.call.conn.server.after(reopened, o.poll)
	return o.hold()
}

// passOn reads as much as the host accepts; -1 means none now.
func (o *out) passOn() (int, error) {
	most := wire.Chunk
	if o.grown {
		most = largeChunk
	}
	room := min(most, o.window)
	if o.forward > 0 {
		room = int(min(int64(room), o.forward))
	}
	if room <= 0 {
		return -1, nil
	}
	conn, typ := o.call.conn, wire.Data|wire.Type(o.channel)
	n := 0
	if !o.call.tty && o.grown {
		n = conn.moveData(typ, o.call.number, o.fd, min(room, kernel.Pending(o.fd)))
	}
	if n == 0 {
		frame := conn.server.room[:wire.HeaderSize+min(room, wire.Chunk)]
		var err error
		if n, err = unix.Read(o.fd, frame[wire.HeaderSize:]); err != nil || n <= 0 {
			return 0, err
		}
		conn.sendData(typ, o.call.number, frame[:wire.HeaderSize+n])
	}
	o.window -= n
	if o.forward > 0 {
		o.forward -= int64(n)
	}
	return n, nil
}

func (o *out) throwAway() (int, error) {
	s := o.call.conn.server
	if s.drain == nil {
		s.drain = make([]byte, drainSize)
	}
	n, err := unix.Read(o.fd, s.drain)
	if err != nil || n <= 0 {
		return 0, err
	}
	if o.keep > 0 {
		o.tail = lastOf(o.tail, s.drain[:n], o.keep)
	}
	return n, nil
}

// lastOf returns the last bytes of a and b together, in a's memory.
func lastOf(a, b []byte, keep int) []byte {
	if len(b) >= keep {
		return append(a[:0], b[len(b)-keep:]...)
	}
	if over := len(a) + len(b) - keep; over > 0 {
		a = a[:copy(a, a[over:])]
	}
	return append(a, b...)
}

// close ends a stream; it returns false, which pump returns.
func (o *out) close() bool {
	o.hold()
	_ = unix.Close(o.fd)
	o.fd = -1
	c := o.call
	c.outs[o.channel] = nil
	c.totals[o.channel] = o.total
	if len(o.tail) > 0 {
		c.tails = append(c.tails, tail{o.channel, o.tail})
	}
	if o.ending && !c.hasOuts() {
		c.finish()
	}
	return false
}

// credit continues the stream, and the message that waits for it.
func (o *out) credit(n int) {
	if ring := o.call.rings[o.channel]; ring != nil {
		ring.window = min(ring.window+n, wire.Window)
		o.call.deliver()
		o.poll()
		return
	}
	o.window = min(o.window+n, wire.Window)
	c := o.call
	o.poll()
	if message := c.outs[wire.CtlOut]; message != nil {
		message.poll()
	}
}
