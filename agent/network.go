package agent

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/agent/wire"
	"github.com/wisbox/wisbox/sandbox"
)

var _ sandbox.Networker = (*Conn)(nil)

const (
	// mostStreams and mostPorts are the maximum numbers of connections of a Conn, and of its listeners and UDP sockets.
	// Sockets that were closed here count until the agent confirms it.
	mostStreams = 512
	mostPorts   = 2560
	// mostHeld is the maximum of waiting data for the agent, in frames.
	mostHeld = 4
	// mostOut is the maximum of bytes that wait to be written. Four pieces of data and a few small frames for each
	// socket are a third of it.
	mostOut = 1 << 20
)

// network are the sockets that an agent keeps for its host.
type network struct {
	conn    *Conn
	begin   sync.Once
	streams chan struct{} // an item for each connection
	accepts chan struct{} // and for each waiting Accept
	ports   chan struct{} // and for each other socket
	held    chan struct{} // and for each frame of data that waits in out

	mu   sync.Mutex
	all  map[uint32]*place // nil once the connection has ended
	out  []byte            // frames to write
	data int               // of them with data
	more chan struct{}     // out has something; room for one
}

// place is a socket's place in the network. Apart from number, only the reader uses it.
type place struct {
	number uint32
	opened bool
	socket carried
	leave  func()
}

// carried is the host's end of a socket that the agent keeps. The reader calls its methods, which never wait. Their
// errors mean a broken protocol.
type carried interface {
	opened(local, peer netip.AddrPort)
	data(payload []byte) error
	credit(n uint32) error
	end() error
	// over is called once, as the last method, also when the connection ends. cause is the reason why the socket was
	// not opened or was lost, nil if the agent closed it.
	over(cause error)
}

func newNetwork(c *Conn) *network {
	return &network{
		conn: c, all: map[uint32]*place{}, more: make(chan struct{}, 1),
		streams: make(chan struct{}, mostStreams), accepts: make(chan struct{}, mostPorts), ports: make(chan struct{}, mostPorts), held: make(chan struct{}, mostHeld),
	}
}

// Listen implements [sandbox.Networker]: frames carry the connections. A connection has CloseWrite, and Reset, which
// doesn't look like a regular end.
func (c *Conn) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	l := newListener(c.net)
	number, err := c.net.openPort(ctx, l, &l.port, request(wire.AskListen, addr), addr)
	l.number = number
	return connOrNone[net.Listener](l, err)
}

// ListenPacket implements [sandbox.Networker]: datagrams are carried by frames.
func (c *Conn) ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error) {
	p := newPackets(c.net)
	number, err := c.net.openPort(ctx, p, &p.port, request(wire.AskUDP, addr), addr)
	p.number = number
	return connOrNone[net.PacketConn](p, err)
}

// DialPort implements [sandbox.Networker], see Listen.
func (c *Conn) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	return c.dial(ctx, fmt.Sprintf("port %d", port), fmt.Sprintf("%s %d", wire.AskConnect, port))
}

// DialAddr implements [sandbox.Networker], see Listen.
func (c *Conn) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	return c.dial(ctx, addr.String(), request(wire.AskConnect, addr))
}

func (c *Conn) dial(ctx context.Context, to, request string) (net.Conn, error) {
	s := newStream(c.net)
	select {
	case c.net.streams <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.err
	}
	if err := s.open(c.net.streams, request); err != nil {
		return nil, err
	}
	select {
	case <-s.answered:
	case <-ctx.Done():
		_ = s.Reset()
		return nil, ctx.Err()
	}
	if s.local.IsValid() {
		return s, nil
	}
	cause := s.why()
	if errors.Is(cause, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("%s of the sandbox: %w", to, unix.ECONNREFUSED)
	}
	return nil, fmt.Errorf("%w: a socket of the sandbox: %w", sandbox.ErrUnavailable, cause)
}

func request(what string, addr netip.AddrPort) string {
	return fmt.Sprintf("%s %s %d", what, addr.Addr(), addr.Port())
}

func connOrNone[T any](conn T, err error) (T, error) {
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: a socket of the sandbox: %w", sandbox.ErrUnavailable, err)
	}
	return conn, nil
}

var errPorts = errors.New("too many ports are open in the sandbox")

// openPort opens a socket with an address, and waits until it is open.
func (n *network) openPort(ctx context.Context, s carried, p *port, request string, want netip.AddrPort) (uint32, error) {
	select {
	case n.ports <- struct{}{}:
	default:
		return 0, errPorts
	}
	number, err := n.open(s, request, func() { <-n.ports })
	if err != nil {
		return 0, err
	}
	select {
	case <-p.answered:
	case <-ctx.Done():
		n.say(wire.SocketClose, number, nil)
		return 0, ctx.Err()
	}
	if p.refused != nil {
		return 0, p.refused
	}
	if p.local.Addr() != want.Addr() || want.Port() != 0 && p.local.Port() != want.Port() {
		n.say(wire.SocketClose, number, nil)
		return 0, errors.New("the agent opened something else")
	}
	return number, nil
}

// open requests a socket. leave is called after the agent's last frame about it, or at once if the request fails.
func (n *network) open(s carried, request string, leave func()) (uint32, error) {
	n.begin.Do(func() { go n.write() })
	number, err := n.give(s, leave)
	if err != nil {
		leave()
		return 0, err
	}
	n.say(wire.SocketOpen, number, []byte(request))
	return number, nil
}

func (n *network) give(s carried, leave func()) (uint32, error) {
	number, err := n.conn.number()
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		return 0, n.conn.err // set before
	}
	n.all[number] = &place{number: number, socket: s, leave: leave}
	return number, nil
}

func (n *network) find(number uint32) *place {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[number]
}

// drop ends a socket after its last frame, unless lose does.
func (n *network) drop(p *place, cause error) {
	n.mu.Lock()
	ours := n.all[p.number] == p
	delete(n.all, p.number)
	n.mu.Unlock()
	if ours {
		p.leave()
		p.socket.over(cause)
	}
}

// lose ends all sockets of a connection that has ended.
func (n *network) lose(cause error) {
	n.mu.Lock()
	all := n.all
	n.all, n.out = nil, nil
	n.mu.Unlock()
	for _, p := range all {
		p.socket.over(cause)
	}
}

// take handles frames about sockets.
func (n *network) take(f wire.Frame) error {
	p := n.find(f.Call)
	if p == nil {
		return wire.Errorf("a frame for a socket that is not open")
	}
	if f.Type == wire.SocketOpened {
		return n.takeOpened(p, f.Payload)
	}
	if f.Type == wire.SocketClosed && len(f.Payload) == 0 { // also for a socket that isn't open: we gave it up
		n.drop(p, nil)
		return nil
	}
	if !p.opened {
		return wire.Errorf("a frame for a socket that was not opened")
	}
	switch {
	case f.Type == wire.SocketData && len(f.Payload) > 0 && len(f.Payload) <= wire.Chunk:
		return p.socket.data(f.Payload)
	case f.Type == wire.SocketCredit && len(f.Payload) == 4:
		return p.socket.credit(binary.BigEndian.Uint32(f.Payload))
	case f.Type == wire.SocketEnd && len(f.Payload) == 0:
		return p.socket.end()
	}
	return wire.Errorf("%d bytes in a frame %#x", len(f.Payload), uint8(f.Type))
}

func (n *network) takeOpened(p *place, payload []byte) error {
	var o wire.Opened
	if p.opened || len(payload) > wire.MaxOpened || json.Unmarshal(payload, &o) != nil {
		return wire.Errorf("a socket was opened twice, or in no words")
	}
	if o.Errno != 0 {
		n.drop(p, unix.Errno(o.Errno))
		return nil
	}
	if !o.Local.IsValid() {
		return wire.Errorf("a socket without an address")
	}
	p.opened = true
	p.socket.opened(o.Local, o.Peer)
	return nil
}

// say queues a frame without data. It doesn't wait, so Close doesn't either.
func (n *network) say(typ wire.Type, number uint32, payload []byte) { n.add(typ, number, payload, 0) }

// add queues a frame; data is 1 if the frame has a place in held.
func (n *network) add(typ wire.Type, number uint32, payload []byte, data int) {
	n.mu.Lock()
	if n.all != nil {
		n.out = wire.Append(n.out, typ, number, payload)
		n.data += data
	}
	full := len(n.out) > mostOut
	n.mu.Unlock()
	if full { // a dishonest agent: an honest one that reads nothing soon can't send
		go n.conn.end(wire.Errorf("the agent sends, and takes nothing"))
		return
	}
	select {
	case n.more <- struct{}{}:
	default:
	}
}

// write writes queued frames until the connection ends.
func (n *network) write() {
	var spare []byte
	for {
		select {
		case <-n.more:
		case <-n.conn.done:
			return
		}
		n.mu.Lock()
		frames, data := n.out, n.data
		n.out, n.data = spare[:0], 0
		n.mu.Unlock()
		if err := n.conn.out.writeAll(frames); err != nil {
			n.conn.end(fmt.Errorf("%w: write to the agent: %w", sandbox.ErrLost, err))
			return
		}
		for range data {
			<-n.held
		}
		spare = frames
	}
}

// port is the common part of listeners and UDP sockets.
type port struct {
	net      *network
	number   uint32
	answered chan struct{} // closed when local or refused is set
	closed   chan struct{} // by its owner
	gone     chan struct{} // closed after the last frame
	once     sync.Once

	mu      sync.Mutex // guards the fields below until answered is closed
	local   netip.AddrPort
	refused error
}

func newPort(n *network) port {
	return port{net: n, answered: make(chan struct{}), closed: make(chan struct{}), gone: make(chan struct{})}
}

func (p *port) opened(local, _ netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refused == nil { // otherwise the connection has ended at the same time
		p.local = local
		close(p.answered)
	}
}

func (p *port) over(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.local.IsValid() {
		p.refused = cmp.Or(cause, error(unix.ECANCELED))
		close(p.answered)
	}
	close(p.gone)
}

func (p *port) end() error          { return wire.Errorf("the end of a socket that has none") }
func (p *port) credit(uint32) error { return wire.Errorf("credit for a socket that needs none") }

// Close ends the socket in the sandbox too.
func (p *port) Close() error {
	err := net.ErrClosed
	p.once.Do(func() {
		err = nil
		close(p.closed)
		select {
		case <-p.gone:
		default:
			p.net.say(wire.SocketClose, p.number, nil)
		}
	})
	return err
}

// listener accepts one connection for each call of Accept.
type listener struct{ port }

func newListener(n *network) *listener { return &listener{newPort(n)} }

func (l *listener) data([]byte) error { return wire.Errorf("data of a socket that listens") }

// Addr implements [net.Listener].
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.local) }

// Accept implements [net.Listener]. A waiting caller takes no place of a connection.
func (l *listener) Accept() (net.Conn, error) {
	s := newStream(l.net)
	if !l.place(l.net.accepts) {
		return nil, l.failed(net.ErrClosed)
	}
	if err := s.open(l.net.accepts, fmt.Sprintf("%s %d", wire.AskAccept, l.number)); err != nil {
		return nil, l.failed(net.ErrClosed)
	}
	select {
	case <-s.answered:
	case <-l.closed:
		_ = s.Reset()
		return nil, l.failed(net.ErrClosed)
	}
	if !s.local.IsValid() {
		return nil, l.failed(s.why())
	}
	if !l.place(l.net.streams) {
		_ = s.Reset()
		return nil, l.failed(net.ErrClosed)
	}
	s.move(l.net.streams)
	return s, nil
}

// place waits for a place. It returns false if the listener has ended.
func (l *listener) place(in chan<- struct{}) bool {
	select {
	case in <- struct{}{}:
		return true
	case <-l.closed:
	case <-l.gone:
	}
	return false
}

// failed returns the error of an Accept. It passes on only an agent's lack of resources.
func (l *listener) failed(cause error) error {
	for _, passes := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM} {
		if errors.Is(cause, passes) {
			return &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: unix.EMFILE}
		}
	}
	return &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
}
