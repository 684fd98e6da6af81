package door

import (
	"context"
	"net"
	"net/netip"

	"github.com/wisbox/wisbox/sandbox"
)

// network is a sandbox's network for package egress.
type network struct{ to sandbox.Networker }

// Listen implements [egress.Network].
func (n network) Listen(ctx context.Context, _, address string) (net.Listener, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return n.to.Listen(ctx, addr)
}

// DialAddr implements [egress.Network].
func (n network) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	return n.to.DialAddr(ctx, addr)
}

// ListenPacket implements [egress.Network].
func (n network) ListenPacket(ctx context.Context, _, address string) (net.PacketConn, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	return n.to.ListenPacket(ctx, addr)
}
