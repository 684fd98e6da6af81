package serve

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

const (
	ringSize   = 256 << 10        // bytes of each output that wait for a reader
	unclaimed  = 60 * time.Second // a program waits for another host after its own is gone
	keptEnded  = 64               // maximum number of ended programs that wait for a reader
	argvToKeep = 4 << 10          // bytes
)

// ring holds the unread output of a detached program. If it is full, the program waits if there is a reader; otherwise
// the oldest bytes are dropped.
type ring struct {
	bytes   []byte
	read    int64 // bytes that went to readers
	dropped int64
	window  int // bytes that the reader accepts now
}

// detach gives a call an id.
func (s *server) detach(c *call, payload []byte) {
	s.lastID++
	c.id = s.lastID
	s.detached[c.id] = c
	if req, err := wire.DecodeRequest(payload); err == nil {
		c.label = req.Label
		size := 0
		for _, word := range req.Argv {
			if size += len(word); size > argvToKeep {
				break
			}
			c.argv = append(c.argv, word)
		}
	}
}

// begun reports the program's start to the host.
func (c *call) begun(pid string) {
	c.pid, _ = strconv.Atoi(pid)
	c.tellOf()
}

func (c *call) tellOf() {
	pid := binary.BigEndian.AppendUint32(nil, uint32(c.pid))
	c.conn.send(wire.Started, c.number, binary.BigEndian.AppendUint64(pid, c.id))
}

// store reads the program's output into the ring.
func (o *out) store(r *ring) (int, error) {
	c := o.call
	if len(r.bytes) >= ringSize && !c.conn.lost && !o.ending {
		return -1, nil
	}
	room := c.conn.server.room
	n, err := unix.Read(o.fd, room)
	if err != nil || n <= 0 {
		return 0, err
	}
	r.bytes = append(r.bytes, room[:n]...)
	if over := len(r.bytes) - ringSize; over > 0 && c.conn.lost {
		r.dropped += int64(over)
		r.bytes = r.bytes[:copy(r.bytes, r.bytes[over:])]
	}
	c.deliver()
	return n, nil
}

// deliver sends the reader as much as it accepts; the exit follows the last byte.
func (c *call) deliver() {
	if c.conn.lost {
		return
	}
	waits := false
	for channel, r := range c.rings {
		if r == nil {
			continue
		}
		for len(r.bytes) > 0 && r.window > 0 {
			n := min(len(r.bytes), r.window, wire.Chunk)
			c.conn.send(wire.Data|wire.Type(channel), c.number, r.bytes[:n])
			r.window -= n
			r.read += int64(n)
			r.bytes = r.bytes[:copy(r.bytes, r.bytes[n:])]
		}
		waits = waits || len(r.bytes) > 0
	}
	if c.over != nil && !waits && !c.told {
		c.told = true
		c.conn.lastOf(c, *c.over)
	}
}

// taken forgets a detached program after the host has received its end. Until then it is kept, because the agent may
// not learn in time that a host was killed.
func (c *conn) taken(number uint32) {
	for id, call := range c.server.detached {
		if call.conn == c && call.number == number && call.told {
			delete(c.server.detached, id)
			return
		}
	}
}

// isOver keeps the end of a detached program for its reader.
func (c *call) isOver() {
	s := c.conn.server
	exit := c.verdict(s.events.Read())
	c.over = &exit
	s.cancel(c.waiting)
	c.deliver()
	s.forgetOldest()
}

func (s *server) forgetOldest() {
	ended := 0
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.detached))) {
		if s.detached[id].over == nil {
			continue
		}
		if ended++; ended > keptEnded {
			delete(s.detached, id)
		}
	}
}

// leave handles the end of the connection that has a detached program.
func (c *call) leave() {
	s := c.conn.server
	c.conn, c.number, c.told = s.nobody, 0, false
	for _, o := range c.outs {
		if o != nil {
			o.poll()
		}
	}
	if c.over == nil {
		c.waiting = s.after(unclaimed, func() {
			c.lonely = true
			s.end(c, "cancelled")
		})
	}
}

// attach lets a call of this connection take over a detached program that no other has.
func (c *conn) attach(number uint32, payload []byte) bool {
	if len(payload) != 8 || number == 0 || c.calls[number] != nil {
		return false
	}
	call := c.server.detached[binary.BigEndian.Uint64(payload)]
	if call == nil || !call.conn.lost {
		kind := "unknown"
		if call != nil {
			kind = "held"
		}
		exit, _ := json.Marshal(wire.Exit{Status: "exited", Error: &wire.StartError{Kind: kind, Message: "no program with this id waits for a reader"}})
		c.send(wire.Exited, number, exit)
		return true
	}
	c.server.cancel(call.waiting)
	call.conn, call.number = c, number
	c.calls[number] = call
	for _, r := range call.rings {
		if r != nil {
			r.window = wire.Window
		}
	}
	for _, in := range call.ins {
		if in != nil {
			in.inherit()
		}
	}
	call.tellOf()
	call.deliver()
	return true
}

// listed returns the detached programs for a new owner of the sandbox, as many as fit in a frame.
func (s *server) listed() []byte {
	list := s.list()
	payload, _ := json.Marshal(list)
	for _, leaveOut := range []func(*wire.Detached){
		func(one *wire.Detached) { one.Argv = nil },
		func(one *wire.Detached) { one.Label = "" },
	} {
		if len(payload) <= wire.MaxFrame {
			break
		}
		for i := range list {
			leaveOut(&list[i])
		}
		payload, _ = json.Marshal(list)
	}
	return payload
}

func (s *server) list() []wire.Detached {
	found := []wire.Detached{}
	for _, id := range slices.Sorted(maps.Keys(s.detached)) {
		found = append(found, s.detached[id].describe())
	}
	return found
}

func (c *call) describe() wire.Detached {
	one := wire.Detached{
		ID: c.id, PID: c.pid, Label: c.label, Argv: c.argv, Seconds: time.Since(c.began).Seconds(),
		Held: !c.conn.lost, Ended: c.over != nil,
	}
	if in := c.ins[wire.Stdin]; in != nil {
		one.Input = !in.closed && !in.eof
	}
	for i, channel := range []wire.Channel{wire.Stdout, wire.Stderr} {
		if r := c.rings[channel]; r != nil {
			one.Read[i], one.Dropped[i] = r.read, r.dropped
		}
	}
	return one
}

// endLeft ends the programs without a connection's call: detached ones, and descendants that other programs left.
func (s *server) endLeft(reason string) {
	for _, c := range s.detached {
		if c.over == nil {
			s.end(c, reason)
		}
	}
	for slot := range s.slots {
		if slot.linger {
			s.order(slot, 0)
		}
	}
}
