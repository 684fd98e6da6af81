package agent

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
)

// packets is a UDP socket whose datagrams are carried by frames, a [net.PacketConn].
type packets struct {
	port
	readable chan struct{}
	readBy   deadline
	writeBy  deadline

	mu      sync.Mutex
	queue   [][]byte // each after its address
	granted int
}

func newPackets(n *network) *packets {
	return &packets{port: newPort(n), readable: make(chan struct{}, 1), readBy: newDeadline(), writeBy: newDeadline(), granted: wire.SocketWindow}
}

func (p *packets) data(payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.granted -= len(payload); p.granted < 0 || len(payload) < wire.AddressSize {
		return wire.Errorf("a datagram of %d bytes", len(payload))
	}
	p.queue = append(p.queue, append([]byte(nil), payload...))
	wake(p.readable)
	return nil
}

// ReadFrom implements [net.PacketConn]. A datagram longer than b is cut.
func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if err := stopped(p.closed, &p.readBy); err != nil {
			return 0, nil, p.failed("read", err)
		}
		if packet := p.next(); packet != nil {
			from := net.UDPAddrFromAddrPort(wire.Address(packet))
			return copy(b, packet[wire.AddressSize:]), from, nil
		}
		select {
		case <-p.readable:
		case <-p.closed:
		case <-p.gone:
			return 0, nil, p.failed("read", net.ErrClosed)
		case <-p.readBy.passed():
		}
	}
}

// next returns the next datagram, nil if there is none; its bytes are granted again.
func (p *packets) next() []byte {
	p.mu.Lock()
	if len(p.queue) == 0 {
		p.mu.Unlock()
		return nil
	}
	packet := p.queue[0]
	if p.queue = p.queue[1:]; len(p.queue) == 0 {
		p.queue = nil
	} else {
		wake(p.readable) // for another reader
	}
	credit := wire.SocketWindow - p.granted
	for _, waits := range p.queue {
		credit -= len(waits)
	}
	if credit < wire.SocketWindow/4 {
		credit = 0
	}
	p.granted += credit
	p.mu.Unlock()
	if credit > 0 {
		p.net.say(wire.SocketCredit, p.number, binary.BigEndian.AppendUint32(nil, uint32(credit)))
	}
	return packet
}

// WriteTo implements [net.PacketConn].
func (p *packets) WriteTo(b []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok || !to.AddrPort().Addr().Unmap().Is4() || wire.AddressSize+len(b) > wire.Chunk {
		return 0, p.failed("write", unix.EINVAL)
	}
	if err := stopped(p.closed, &p.writeBy); err != nil {
		return 0, p.failed("write", err)
	}
	at := netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), to.AddrPort().Port())
	select {
	case <-p.closed:
		return 0, p.failed("write", net.ErrClosed)
	case <-p.gone:
		return 0, p.failed("write", net.ErrClosed)
	case <-p.writeBy.passed():
		return 0, p.failed("write", os.ErrDeadlineExceeded)
	case p.net.held <- struct{}{}:
	}
	p.net.add(wire.SocketData, p.number, append(wire.AppendAddress(nil, at), b...), 1)
	return len(b), nil
}

func (p *packets) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Addr: p.LocalAddr(), Err: err}
}

// LocalAddr implements [net.PacketConn]; it is the sandbox's.
func (p *packets) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(p.local) }

// SetDeadline implements [net.PacketConn].
func (p *packets) SetDeadline(t time.Time) error {
	return firstOf(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.PacketConn].
func (p *packets) SetReadDeadline(t time.Time) error {
	p.readBy.set(t)
	return nil
}

// SetWriteDeadline implements [net.PacketConn].
func (p *packets) SetWriteDeadline(t time.Time) error {
	p.writeBy.set(t)
	return nil
}
