package serve

import (
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// packets is a UDP socket.
type packets struct {
	ending
	window int // bytes that the host accepts now
}

// pull passes on one datagram. While the host accepts none, the kernel queues them and drops the excess.
func (p *packets) pull() {
	if p.conn.size() > backlog {
		p.conn.stall(p)
		p.watch(0, nil)
		return
	}
	if p.window < wire.Chunk { // the largest datagram may come
		p.watch(0, nil)
		return
	}
	head := wire.HeaderSize + wire.AddressSize
	frame := p.conn.server.room
	n, from, err := unix.Recvfrom(p.fd, frame[head:], 0)
	sender := addressOf(from, err)
	if err != nil || !sender.Addr().Is4() {
		return
	}
	wire.AppendAddress(frame[wire.HeaderSize:wire.HeaderSize], sender)
	p.window -= wire.AddressSize + n
	p.conn.sendData(wire.SocketData, p.number, frame[:head+n])
}

// poll continues once the host's queue has room.
func (p *packets) poll() {
	if p.fd >= 0 {
		p.watch(unix.EPOLLIN, p.pull)
	}
}

// data sends a datagram, or drops it as networks do.
func (p *packets) data(payload []byte) bool {
	if len(payload) < wire.AddressSize {
		return false
	}
	to := wire.Address(payload)
	_ = unix.Sendto(p.fd, payload[wire.AddressSize:], unix.MSG_DONTWAIT, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	return true
}

func (p *packets) credit(n int64) bool {
	if n > int64(wire.SocketWindow-p.window) {
		return false
	}
	p.window += int(n)
	p.poll()
	return true
}

func (p *packets) end() bool  { return false }
func (p *packets) close(bool) { p.over() }
