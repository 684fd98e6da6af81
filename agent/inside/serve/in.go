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
	fd      int // -1 before the program has one, and once it is closed
	queue   []byte
	foreign int  // bytes at the queue's beginning that came from an earlier host
	typed   int  // bytes at the queue's end that didn't come from the host
	eof     bool // follows the queue
	owed    int  // bytes consumed, and not yet granted again
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

// feed accepts data from the host; no data means the end. It returns false if the host sent more than granted.
func (c *call) feed(channel wire.Channel, data []byte) bool {
	in := c.ins[channel]
	if in == nil {
		return true
	}
	if channel == wire.CtlIn && c.before != nil {
		*c.before = c.conn.server.events.Read() // a new request: it didn't cause earlier counts
	}
	if len(data) == 0 {
		in.eof = true
	}
	in.queue = append(in.queue, data...)
	most := wire.Window
	if c.id != 0 {
		most *= 2 // the previous reader may have left as much
	}
	if len(in.queue)-in.typed > most {
		return false
	}
	in.push()
	return true
}

// push writes the queue; the end of file follows the last byte.
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

// took grants the host the bytes again that were consumed or dropped.
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

// inherit lets another host continue the stream: the queued bytes were granted to the previous one. It keeps at most
// one window of several hosts' bytes.
func (i *in) inherit() {
	if len(i.queue)-i.typed > wire.Window {
		i.queue, i.typed = i.queue[:wire.Window], 0
	}
	i.owed, i.foreign = 0, len(i.queue)-i.typed
}

// finish signals the end of file, on a terminal by typing it.
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
