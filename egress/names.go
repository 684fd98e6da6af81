package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// names assigns addresses inside the sandbox to names, and listens on them.
type names struct {
	p *Proxy

	mu      sync.Mutex
	network Network // nil before Start
	all     map[string]*named
	next    uint16
}

// named is a name with its address.
type named struct {
	host      string
	addr      netip.Addr
	ports     []uint16
	listeners []net.Listener
	asked     time.Time
}

// answerFor is how long programs may cache an address; a name that was queried within that time keeps its address.
const answerFor = time.Minute

var errNamesFull = errors.New("too many names have an address; wait a minute")

func newNames(p *Proxy) *names { return &names{p: p, all: map[string]*named{}} }

// address returns the address of an allowed name. Its ports are open when address returns.
func (n *names) address(ctx context.Context, host string) (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ports := n.p.Policy().Ports(host)
	if len(ports) == 0 || n.network == nil {
		return netip.Addr{}, errors.New("not allowed")
	}
	if known := n.all[host]; known != nil {
		known.asked = time.Now()
		return known.addr, nil
	}
	if len(n.all) >= n.p.opts.Bounds.Names && !n.dropOldest() {
		return netip.Addr{}, errNamesFull
	}
	name := &named{host: host, addr: n.free(), ports: ports, asked: time.Now()}
	if err := n.listen(ctx, name); err != nil {
		return netip.Addr{}, err
	}
	n.all[host] = name
	return name.addr, nil
}

// free returns the next free address. The caller holds mu.
func (n *names) free() netip.Addr {
	for {
		n.next++
		a := netip.AddrFrom4([4]byte{127, 16, byte(n.next >> 8), byte(n.next)})
		taken := false
		for _, name := range n.all {
			taken = taken || name.addr == a
		}
		if last := byte(n.next); !taken && last != 0 && last != 255 {
			return a
		}
	}
}

// listen opens all ports of a name, or none.
func (n *names) listen(ctx context.Context, name *named) error {
	for _, port := range name.ports {
		l, err := n.network.Listen(ctx, "tcp4", netip.AddrPortFrom(name.addr, port).String())
		if err != nil {
			name.close()
			return err
		}
		name.listeners = append(name.listeners, l)
	}
	for i, port := range name.ports {
		l := name.listeners[i]
		if end := n.p.opened(l); end != nil {
			go func() {
				defer end()
				n.p.serveName(l, name.host, port)
			}()
		}
	}
	return nil
}

func (name *named) close() {
	for _, l := range name.listeners {
		_ = l.Close()
	}
}

// dropOldest makes room for a name. The caller holds mu.
func (n *names) dropOldest() bool {
	var oldest *named
	for _, name := range n.all {
		if oldest == nil || name.asked.Before(oldest.asked) {
			oldest = name
		}
	}
	if oldest == nil || time.Since(oldest.asked) < answerFor {
		return false
	}
	n.drop(oldest)
	return true
}

func (n *names) drop(name *named) {
	name.close()
	delete(n.all, name.host)
}

// keepAllowed drops the names whose ports a new policy changed.
func (n *names) keepAllowed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range n.all {
		if !slices.Equal(n.p.Policy().Ports(name.host), name.ports) {
			n.drop(name)
		}
	}
}

// serveName serves the connections to one port of a name, until the listener ends.
func (p *Proxy) serveName(l net.Listener, host string, port uint16) {
	in := accepting{l, p}
	for {
		c, err := in.Accept()
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !passes(err) {
				return
			}
			continue
		}
		p.wg.Go(func() { p.serveTransparent(c, host, port) })
	}
}

// passes reports whether a socket can continue after an error, and waits a little.
func passes(err error) bool {
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) && !errors.Is(err, syscall.ECONNABORTED) && !errors.Is(err, syscall.ECONNREFUSED) {
		return false
	}
	time.Sleep(5 * time.Millisecond)
	return true
}

const transparent = "transparent"

// serveTransparent serves a connection of a program that doesn't use the proxy.
func (p *Proxy) serveTransparent(c net.Conn, host string, port uint16) {
	d := p.decide(host, port)
	if !d.Allowed {
		p.note(transparent, notAllowed(d))
		reset(c)
		return
	}
	p.serveConn(c, d, transparent, nil)
}
