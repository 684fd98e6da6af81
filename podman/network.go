package podman

import (
	"context"
	"net"
	"net/netip"

	"github.com/wisbox/wisbox/sandbox"
)

var (
	_ sandbox.Networker  = (*Sandbox)(nil)
	_ sandbox.Renewer    = (*Sandbox)(nil)
	_ sandbox.PortFinder = (*Sandbox)(nil)
)

// Generation implements [sandbox.Renewer].
func (s *Sandbox) Generation(ctx context.Context) (uint64, error) { return s.agent.Generation(ctx) }

// Listen implements [sandbox.Networker].
func (s *Sandbox) Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	network, err := s.agent.Network(ctx)
	if err != nil {
		return nil, err
	}
	return network.Listen(ctx, addr)
}

// ListenPacket implements [sandbox.Networker].
func (s *Sandbox) ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error) {
	network, err := s.agent.Network(ctx)
	if err != nil {
		return nil, err
	}
	return network.ListenPacket(ctx, addr)
}

// DialPort implements [sandbox.Networker].
func (s *Sandbox) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	network, err := s.agent.Network(ctx)
	if err != nil {
		return nil, err
	}
	return network.DialPort(ctx, port)
}

// DialAddr implements [sandbox.Networker].
func (s *Sandbox) DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	network, err := s.agent.Network(ctx)
	if err != nil {
		return nil, err
	}
	return network.DialAddr(ctx, addr)
}

// Listens implements [sandbox.PortFinder].
func (s *Sandbox) Listens(ctx context.Context, port uint16) (bool, error) {
	conn, err := s.agent.Conn(ctx)
	if err != nil {
		return false, err
	}
	return conn.Listens(ctx, port)
}
