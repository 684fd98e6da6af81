package agent

import (
	"encoding/binary"
	"fmt"

	"github.com/wisbox/wisbox/sandbox"
)

// read takes frames until the stream ends or breaks the protocol. It never
// waits for anyone but the stream: what the frames hold goes into buffers that
// the windows bound.
func (c *Conn) read() {
	for {
		f, err := c.frames.next()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.end(fmt.Errorf("%w: read from the agent: %w", sandbox.ErrLost, err))
			return
		}
	}
}

func (c *Conn) take(f frame) error {
	typ, ch := f.split()
	switch typ {
	case typePong, typeLimitsAre:
		c.answer(f)
		return nil
	case typeData, typeCredit, typeTail, typeStarted, typeExit:
	default:
		return protocolError("frame type %#x", uint8(f.typ))
	}
	call := c.find(f.call)
	if call == nil {
		return protocolError("a frame for a call that is not running")
	}
	switch typ {
	case typeData:
		return call.takeData(ch, f.payload)
	case typeCredit:
		return call.takeCredit(ch, f.payload)
	case typeTail:
		return call.takeTail(ch, f.payload)
	case typeStarted:
		return call.takeStarted()
	}
	c.drop(f.call)
	return call.takeExit(f.payload)
}

func (c *Conn) find(number uint32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[number]
}

// answer passes an answer on; one that nobody waits for any more is dropped.
func (c *Conn) answer(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer := c.answers[f.call]; answer != nil {
		delete(c.answers, f.call)
		answer <- append([]byte(nil), f.payload...)
	}
}

func (c *call) takeData(ch channel, payload []byte) error {
	if int(ch) >= len(c.outs) || c.outs[ch] == nil {
		return protocolError("data on channel %d", ch)
	}
	return c.outs[ch].put(payload)
}

func (c *call) takeCredit(ch channel, payload []byte) error {
	if len(payload) != 4 || int(ch) >= len(c.ins) || c.ins[ch] == nil {
		return protocolError("credit on channel %d", ch)
	}
	return c.ins[ch].grant(binary.BigEndian.Uint32(payload))
}

func (c *call) takeTail(ch channel, payload []byte) error {
	if ch != chanStdout && ch != chanStderr || len(c.tails[ch])+len(payload) > c.maxTail {
		return protocolError("a tail on channel %d", ch)
	}
	c.tails[ch] = append(c.tails[ch], payload...)
	return nil
}

func (c *call) takeStarted() error {
	if c.started == nil || c.isStarted {
		return protocolError("a start that nobody asked for")
	}
	c.isStarted = true
	close(c.started)
	return nil
}
