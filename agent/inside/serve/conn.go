package serve

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/inside/kernel"
	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/internal/retry"
)

const (
	backlog = 512 << 10 // bytes queued for the host before programs wait
	kept    = 128 << 10 // bytes of memory that an empty queue keeps
)

// conn is one host's connection. When it ends, its calls do.
type conn struct {
	server  *server
	fd      int
	in      []byte // an incomplete frame
	out     []byte // bytes to write
	written int    // of out
	writing bool   // the socket is full
	stalled map[poller]bool
	calls   map[uint32]*call
	sources map[string]bool
	lost    bool
	greeted bool

	suspends bool // it has stopped the timers

	sockets map[uint32]socket

	descriptors int // socket over which the host requests sockets, -1 without one
}

func (c *conn) greet() {
	c.greeted = true
	hello := kernel.Hello(c.server.gaps, c.server.bounding, c.server.opts.Path)
	hello.Workspace = kernel.Identity(c.server.opts.Workspace)
	payload, _ := json.Marshal(hello)
	c.send(wire.IsHello, 0, payload)
}

// read receives the host's data.
func (c *conn) read() {
	room := c.server.room
	n, err := unix.Read(c.fd, room)
	if again(err) {
		return
	}
	if err != nil || n == 0 {
		c.lose()
		return
	}
	c.in = append(c.in, room[:n]...)
	at := 0
	for len(c.in)-at >= wire.HeaderSize {
		size, typ, number := wire.Header(c.in[at:])
		if size > wire.MaxFrame {
			c.lose()
			return
		}
		if len(c.in)-at < wire.HeaderSize+size {
			break
		}
		at += wire.HeaderSize
		if !c.frame(typ, number, c.in[at:at+size]) {
			c.lose()
			return
		}
		at += size
	}
	c.in = c.in[:copy(c.in, c.in[at:])]
	if len(c.in) == 0 && cap(c.in) > kept {
		c.in = nil
	}
}

func again(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) }

func (c *conn) send(typ wire.Type, number uint32, payload []byte) {
	if !c.lost {
		c.out = wire.Append(c.out, typ, number, payload)
	}
}

// sendData sends the data in frame, which begins with room for the header. A whole chunk goes to the socket at once if
// the queue is empty.
func (c *conn) sendData(typ wire.Type, number uint32, frame []byte) {
	if c.lost {
		return
	}
	wire.AppendHeader(frame[:0], typ, number, len(frame)-wire.HeaderSize)
	if len(frame) == wire.HeaderSize+wire.Chunk && c.size() == 0 {
		n, err := unix.Write(c.fd, frame)
		if err == nil {
			frame = frame[n:]
		}
	}
	c.out = append(c.out, frame...)
}

// moveData is sendData for n bytes in a pipe, which the kernel moves to the socket. It returns 0, and sends nothing, if
// that is impossible now or not worth it.
func (c *conn) moveData(typ wire.Type, number uint32, pipe, n int) int {
	if c.lost || n < wire.Chunk || c.size() > 0 {
		return 0
	}
	header := wire.AppendHeader(c.server.room[:0], typ, number, n)
	written, err := unix.Write(c.fd, header)
	if err != nil || written <= 0 {
		return 0
	}
	moved := int64(0)
	if written == len(header) {
		if moved, err = unix.Splice(pipe, nil, c.fd, nil, n, unix.SPLICE_F_NONBLOCK); err != nil {
			moved = 0
		}
	}
	c.out = append(c.out, header[written:]...)
	c.readPipe(pipe, n-int(moved))
	return n
}

// readPipe appends n bytes that a pipe was seen to contain. A program can open its own pipe through /proc and read
// them: zeros replace the missing ones, because the frame's header has their number.
func (c *conn) readPipe(pipe, n int) {
	c.out = slices.Grow(c.out, n)
	into := c.out[len(c.out) : len(c.out)+n]
	c.out = c.out[:len(c.out)+n]
	for len(into) > 0 {
		got, err := retry.Interrupted(func() (int, error) { return unix.Read(pipe, into) })
		if err != nil || got <= 0 {
			clear(into)
			return
		}
		into = into[got:]
	}
}

// size returns the number of bytes that wait to be written.
func (c *conn) size() int { return len(c.out) - c.written }

func (c *conn) flush() {
	if c.lost || c.writing || c.size() == 0 {
		return
	}
	c.write()
}

func (c *conn) write() {
	n, err := unix.Write(c.fd, c.out[c.written:])
	if err != nil && !again(err) {
		c.lose()
		return
	}
	if c.written += max(n, 0); c.size() > 0 {
		c.waitToWrite()
		return
	}
	c.out, c.written = c.out[:0], 0
	if cap(c.out) > kept {
		c.out = nil
	}
	if c.writing {
		c.writing = false
		c.server.unwatch(c.fd)
		c.server.watch(c.fd, unix.EPOLLIN, c.read)
	}
	c.resume()
}

// waitToWrite watches the socket for reading and writing; written data makes room in the queue.
func (c *conn) waitToWrite() {
	c.out = c.out[:copy(c.out, c.out[c.written:])]
	c.written = 0
	if !c.writing {
		c.writing = true
		c.server.unwatch(c.fd)
		c.server.watch(c.fd, unix.EPOLLIN|unix.EPOLLOUT, func() {
			c.read()
			if !c.lost {
				c.write()
			}
		})
	}
}

// poller is a stream that can continue.
type poller interface{ poll() }

// stall remembers a stream that waits for room in the queue.
func (c *conn) stall(p poller) {
	if c.stalled == nil {
		c.stalled = map[poller]bool{}
	}
	c.stalled[p] = true
}

func (c *conn) resume() {
	stalled := c.stalled
	c.stalled = nil
	for p := range stalled {
		p.poll()
	}
}

// lose ends the connection and its programs.
func (c *conn) lose() {
	if c.lost {
		return
	}
	c.lost, c.in, c.out, c.written = true, nil, nil, 0
	c.suspend(false)
	c.server.unwatch(c.fd)
	_ = unix.Close(c.fd)
	c.endDescriptors()
	c.resetSockets()
	delete(c.server.conns, c)
	for _, call := range c.server.detached {
		if call.conn == c {
			call.leave()
		}
	}
	for _, call := range c.calls {
		if call.id != 0 {
			continue
		}
		for _, o := range call.outs {
			if o != nil {
				o.forward = 0 // its output goes nowhere any more
				o.poll()
			}
		}
		c.server.end(call, "cancelled")
	}
}

// loseOthers ends connections whose hosts may be gone: a relay doesn't always notice.
func (c *conn) loseOthers() {
	for other := range c.server.conns {
		if other != c {
			other.lose()
		}
	}
}

// suspend stops or restarts the timers.
func (c *conn) suspend(still bool) {
	if still {
		c.server.suspend()
	} else if c.suspends {
		c.server.resume()
	}
	c.suspends = still
}

// frame handles a frame; it returns false on a protocol error.
func (c *conn) frame(typ wire.Type, number uint32, payload []byte) bool {
	switch typ {
	case wire.Run:
		return c.run(number, payload)
	case wire.Source:
		return c.source(payload)
	case wire.Ping:
		c.send(wire.Pong, number, payload)
		return true
	case wire.Limits:
		limits, _ := json.Marshal(kernel.Limits())
		c.send(wire.LimitsAre, number, limits)
		return true
	case wire.Put:
		return c.put(number, payload)
	case wire.Suspend, wire.Resume:
		c.suspend(typ == wire.Suspend)
		c.send(wire.Done, number, nil)
		return true
	case wire.Attach:
		return c.attach(number, payload)
	case wire.List:
		if string(payload) == wire.Alone {
			c.loseOthers()
		}
		c.send(wire.Listed, number, c.server.listed())
		return true
	case wire.Port:
		return c.port(number, payload)
	case wire.Taken:
		c.taken(number)
		return true
	case wire.Leave:
		c.server.done = true
		return true
	case wire.Kill:
		if number == 0 {
			c.server.endLeft(string(payload))
			return true
		}
	}
	if typ >= wire.SocketOpen && typ <= wire.SocketReset && typ != wire.SocketOpened {
		return c.socketFrame(typ, number, payload)
	}
	call := c.calls[number]
	if call == nil {
		return known(typ)
	}
	return call.frame(wire.Frame{Type: typ, Call: number, Payload: payload})
}

// port answers whether a program listens on a port.
func (c *conn) port(number uint32, payload []byte) bool {
	if len(payload) != 2 {
		return false
	}
	answer := []byte{0}
	if kernel.Listens(binary.BigEndian.Uint16(payload)) {
		answer[0] = 1
	}
	c.send(wire.PortIs, number, answer)
	return true
}

// known reports whether this is a type of frame for calls; the call itself may have ended meanwhile.
func known(typ wire.Type) bool {
	kind, _ := wire.Frame{Type: typ}.Split()
	return kind == wire.Data || kind == wire.Credit || kind == wire.Kill || kind == wire.Signal || kind == wire.Resize
}

// frame handles a frame for a call.
func (c *call) frame(f wire.Frame) bool {
	typ, channel := f.Split()
	switch {
	case typ == wire.Kill:
		reason := string(f.Payload)
		if reason == "" {
			reason = "cancelled"
		}
		c.conn.server.end(c, reason)
	case typ == wire.Signal && len(f.Payload) == 1:
		c.conn.server.signal(c, int(f.Payload[0]))
	case typ == wire.Resize && len(f.Payload) == 4:
		if o := c.outs[wire.Stdout]; c.tty && o != nil {
			kernel.SetSize(o.fd, binary.BigEndian.Uint16(f.Payload), binary.BigEndian.Uint16(f.Payload[2:]))
		}
	case typ == wire.Data && (channel == wire.Stdin || channel == wire.CtlIn):
		return c.feed(channel, f.Payload)
	case typ == wire.Credit && len(f.Payload) == 4 && (channel == wire.Stdout || channel == wire.Stderr || channel == wire.CtlOut):
		if o := c.outs[channel]; o != nil || c.rings[channel] != nil {
			if o == nil { // the program has closed it, and its last bytes are queued
				o = &out{call: c, channel: channel, fd: -1}
			}
			o.credit(int(binary.BigEndian.Uint32(f.Payload)))
		}
	default:
		return false
	}
	return true
}

// source accepts a Python source, once for each connection.
func (c *conn) source(payload []byte) bool {
	first, source, _ := strings.Cut(string(payload), "\n")
	key, name, _ := strings.Cut(first, " ")
	if key == "" || c.sources[key] {
		return false
	}
	c.sources[key] = true
	if c.server.pools[key] == nil {
		c.server.pools[key] = &pool{spare: 1, name: name, source: []byte(source)}
	}
	return true
}

// run starts a call.
func (c *conn) run(number uint32, payload []byte) bool {
	head, err := wire.DecodeHead(payload)
	pool := c.server.pools[head.Key()]
	if err != nil || number == 0 || c.calls[number] != nil || pool == nil {
		return false
	}
	if head.Flags&wire.WithDetach != 0 && (head.Flags&wire.WithControl != 0 || head.Key() != "") {
		return false
	}
	s := c.server
	slot := pool.take()
	if slot != nil { // at once: the program waits for nothing else
		slot.request(payload)
	}
	call := newCall(c, number, head)
	c.calls[number], s.calls[call] = call, true
	if head.Flags&wire.WithDetach != 0 {
		s.detach(call, payload)
	}
	if !s.looking {
		s.looking = true
		s.after(look, s.look)
	}
	if slot != nil {
		s.dispatch(call, slot)
		return true
	}
	call.request, call.misses = append([]byte(nil), payload...), pool.misses
	pool.waiting = append(pool.waiting, call)
	s.fill(pool)
	s.after(turn, func() { s.fill(pool) })
	s.after(startTime, func() { s.noProcess(call, pool) })
	return true
}

// last sends the end of a call.
func (c *conn) last(call *call) {
	delete(c.calls, call.number)
	for _, t := range call.tails {
		for tail := t.bytes; len(tail) > 0; {
			n := min(len(tail), wire.Chunk)
			c.send(wire.Tail|wire.Type(t.channel), call.number, tail[:n])
			tail = tail[n:]
		}
	}
	c.lastOf(call, call.verdict(c.server.events.Read()))
}

func (c *conn) lastOf(call *call, exit wire.Exit) {
	delete(c.calls, call.number)
	text, _ := json.Marshal(exit)
	c.send(wire.Exited, call.number, text)
}

// newCall returns a call that has no process yet.
func newCall(c *conn, number uint32, head wire.RequestHead) *call {
	call := &call{conn: c, number: number, head: head, key: head.Key(), began: time.Now()}
	call.tty, call.control = head.Flags&wire.WithTTY != 0, head.Flags&wire.WithControl != 0
	if head.Flags&wire.WithStdin != 0 {
		call.ins[wire.Stdin] = newIn(call, wire.Stdin)
	}
	if head.Flags&wire.WithControlIn != 0 {
		call.ins[wire.CtlIn] = newIn(call, wire.CtlIn)
	}
	return call
}
