package agent

import (
	"encoding/binary"
	"fmt"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

// read reads frames until the stream ends or breaks the protocol. It waits only for the stream: the content of frames
// goes into buffers, which the windows bound.
func (c *Conn) read() {
	for {
		f, err := c.frames.Next()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.end(fmt.Errorf("%w: read from the agent: %w", sandbox.ErrLost, err))
			return
		}
	}
}

func (c *Conn) take(f wire.Frame) error {
	typ, ch := f.Split()
	switch typ {
	case wire.Pong, wire.LimitsAre, wire.Done, wire.Listed, wire.PortIs:
		c.answer(f)
		return nil
	case wire.SocketOpened, wire.SocketData, wire.SocketCredit, wire.SocketEnd, wire.SocketClosed:
		return c.net.take(f)
	case wire.Data, wire.Credit, wire.Tail, wire.Started, wire.Exited:
	default:
		return wire.Errorf("frame type %#x", uint8(f.Type))
	}
	call := c.find(f.Call)
	if call == nil {
		return wire.Errorf("a frame for a call that is not running")
	}
	switch typ {
	case wire.Data:
		return call.takeData(ch, f.Payload)
	case wire.Credit:
		return call.takeCredit(ch, f.Payload)
	case wire.Tail:
		return call.takeTail(ch, f.Payload)
	case wire.Started:
		return call.takeStarted(f.Payload)
	}
	c.drop(f.Call)
	return call.takeExit(f.Payload)
}

func (c *Conn) find(number uint32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[number]
}

// answer passes an answer on, or drops it if nobody waits any more.
func (c *Conn) answer(f wire.Frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.answers[f.Call]; answer != nil {
		delete(c.answers, f.Call)
		answer <- append([]byte(nil), f.Payload...)
	}
}

func (c *call) takeData(ch wire.Channel, payload []byte) error {
	if int(ch) >= len(c.outs) || c.outs[ch] == nil {
		return wire.Errorf("data on channel %d", ch)
	}
	return c.outs[ch].put(payload)
}

func (c *call) takeCredit(ch wire.Channel, payload []byte) error {
	if len(payload) != 4 || int(ch) >= len(c.ins) || c.ins[ch] == nil {
		return wire.Errorf("credit on channel %d", ch)
	}
	return c.ins[ch].grant(binary.BigEndian.Uint32(payload))
}

func (c *call) takeTail(ch wire.Channel, payload []byte) error {
	if ch != wire.Stdout && ch != wire.Stderr || len(c.tails[ch])+len(payload) > c.maxTail {
		return wire.Errorf("a tail on channel %d", ch)
	}
	c.tails[ch] = append(c.tails[ch], payload...)
	return nil
}

func (c *call) takeStarted(payload []byte) error {
	if c.started == nil || c.isStarted || len(payload) != wire.StartedSize {
		return wire.Errorf("a start that nobody asked for")
	}
	c.isStarted = true
	c.pid, c.id = int(binary.BigEndian.Uint32(payload)), binary.BigEndian.Uint64(payload[4:])
	close(c.started)
	return nil
}
