package wasm

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"
)

// Layout of WASI's subscriptions and events.
const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 1024
	tagClock         = 0
	flagAbsolute     = 1
)

var little = binary.LittleEndian

type subscription struct {
	userdata uint64
	tag      byte
	wait     time.Duration // of a clock
}

// poll implements poll_oneoff. Files are always ready, so it waits only if all subscriptions are clocks; the wait ends
// with the run.
func poll(ctx context.Context, mod api.Module, stack []uint64) {
	in, out, count, size := uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3])
	if count == 0 || count > maxSubscriptions {
		stack[0] = errnoInval
		return
	}
	m := meterOf(ctx)
	m.spend(priceCall + int64(count)*priceVec)
	raw, ok := mod.Memory().Read(in, count*subscriptionSize)
	if !ok {
		stack[0] = errnoFault
		return
	}
	subs, shortest := m.subscriptions(raw)
	m.sleep(shortest)
	events := appendEvents(nil, subs, shortest)
	if !mod.Memory().Write(out, events) || !mod.Memory().WriteUint32Le(size, uint32(len(events)/eventSize)) {
		stack[0] = errnoFault
		return
	}
	stack[0] = 0
}

// subscriptions decodes the subscriptions and returns the shortest wait, 0 if there is a file.
func (m *meter) subscriptions(raw []byte) ([]subscription, time.Duration) {
	var subs []subscription
	shortest := time.Duration(math.MaxInt64)
	for ; len(raw) > 0; raw = raw[subscriptionSize:] {
		s := subscription{userdata: little.Uint64(raw), tag: raw[8]}
		if s.tag == tagClock {
			s.wait = m.wait(little.Uint64(raw[24:]), little.Uint16(raw[40:]))
		}
		shortest = min(shortest, s.wait)
		subs = append(subs, s)
	}
	return subs, shortest
}

func (m *meter) wait(timeout uint64, flags uint16) time.Duration {
	if timeout > math.MaxInt64 {
		timeout = math.MaxInt64
	}
	if flags&flagAbsolute == 0 {
		return time.Duration(timeout)
	}
	return max(0, time.Duration(int64(timeout)-m.clock.look()))
}

// priceSecond is the fuel for a second of sleep. The default fuel lasts ten.
const priceSecond = DefaultFuel / 10

// sleep waits, and takes fuel for it, so that fuel decides when a program that sleeps ends.
func (m *meter) sleep(d time.Duration) {
	if d <= 0 {
		m.check()
		return
	}
	const nap = time.Second / priceSecond // of one unit
	if lasts := m.remaining() + 1; int64(d/nap) > lasts {
		d = time.Duration(lasts) * nap
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		m.clock.slept(d)
		m.spend(int64(d / nap))
	case <-m.ctx.Done():
		m.check()
	}
}

// appendEvents reports every file, and the clocks that are due.
func appendEvents(out []byte, subs []subscription, passed time.Duration) []byte {
	for _, s := range subs {
		if s.tag == tagClock && s.wait > passed {
			continue
		}
		event := make([]byte, eventSize)
		little.PutUint64(event, s.userdata)
		event[10] = s.tag
		out = append(out, event...)
	}
	return out
}
