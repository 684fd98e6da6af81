package serve

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

var endOfFile = []byte{4} // as typed on a terminal

// in is one stream to a program.
type in struct {
	call    *call
	channel wire.Channel
	fd      int // -1 while the program has none, and once it is closed
	queue   []byte
	foreign int  // of the queue's beginning, bytes of a host before
	typed   int  // of the queue's end, bytes that are not the host's
	eof     bool // follows the queue
	owed    int  // bytes taken, and not yet granted again
	polled  bool
	closed  bool
}

func newIn(c *call, channel wire.Channel) *in { return &in{call: c, channel: channel, fd: -1} }

func (c *call) addIn(channel wire.Channel, fd int) {
	in := c.ins[channel]
	if in == nil || in.closed {
		_ = unix.Close(fd)
		return
	}
	in.fd = fd
	in.push()
}

// feed takes data from the host; none is the end. It returns false for more than was granted.
func (c *call) feed(channel wire.Channel, data []byte) bool {
	in := c.ins[channel]
	if in == nil {
		return true
	}
	if channel == wire.CtlIn && c.before != nil {
		*c.before = c.conn.server.events.Read() // a new request: what was before is not its doing
	}
	if len(data) == 0 {
		in.eof = true
	}
	in.queue = append(in.queue, data...)
	most := wire.Window
	if c.id != 0 {
		most *= 2 // the reader before may have left as much
	}
	if len(in.queue)-in.typed > most {
		return false
	}
	in.push()
	return true
}

// push writes what is queued; the end of file follows the last byte.
func (i *in) push() {
	if len(i.queue) > 0 && i.fd >= 0 {
		n, err := unix.Write(i.fd, i.queue)
		if err != nil && !again(err) { // nobody reads it any more
			i.close()
		}
		i.took(max(n, 0))
		i.queue = i.queue[:copy(i.queue, i.queue[max(n, 0):])]
		if len(i.queue) > 0 && !i.closed {
			i.wait()
			return
		}
	}
	if i.closed {
		i.took(len(i.queue))
		i.queue = nil
	}
	i.unpoll()
	if i.eof && len(i.queue) == 0 && i.fd >= 0 {
		i.finish()
	}
}

func (i *in) wait() {
	if !i.polled {
		i.polled = true
		i.call.conn.server.watch(i.fd, unix.EPOLLOUT, i.push)
	}
}

func (i *in) unpoll() {
	if i.polled {
		i.polled = false
		i.call.conn.server.unwatch(i.fd)
	}
}

// took grants the host again what the program, or nobody, has taken.
func (i *in) took(n int) {
	own := min(n, i.typed)
	if len(i.queue) > i.typed { // the host's bytes come before what we typed
		own = max(0, n-(len(i.queue)-i.typed))
	}
	i.typed -= own
	n -= own
	old := min(n, i.foreign)
	i.foreign -= old
	i.owed += n - old
	if i.owed > 0 && (i.owed >= wire.Window/4 || i.closed) {
		i.call.conn.send(wire.Credit|wire.Type(i.channel), i.call.number, binary.BigEndian.AppendUint32(nil, uint32(i.owed)))
		i.owed = 0
	}
}

// inherit has another host go on with the stream: what is queued was granted to the one
// before. More than a window, of several, is not kept.
func (i *in) inherit() {
	if len(i.queue)-i.typed > wire.Window {
		i.queue, i.typed = i.queue[:wire.Window], 0
	}
	i.owed, i.foreign = 0, len(i.queue)-i.typed
}

// finish is the end of the file: on a terminal it is typed.
func (i *in) finish() {
	if i.channel != wire.Stdin || !i.call.tty {
		i.close()
		return
	}
	i.eof = false
	i.queue = append(i.queue, endOfFile...)
	i.typed++
	i.push()
}

func (i *in) close() {
	i.unpoll()
	if i.fd >= 0 {
		_ = unix.Close(i.fd)
	}
	i.fd, i.closed = -1, true
}
