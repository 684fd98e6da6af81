package sandbox

import (
	"context"
	"net"
	"net/netip"
)

// Networker is a [Sandbox] whose network this process can use. Its sockets belong to the
// sandbox, which creates them and hands them over. If descriptors can't be passed, as with
// gVisor or a Podman on another machine, the sockets stay inside and their data is relayed,
// which is slower. The sandbox's only network is its loopback device, 127.0.0.0/8. The methods
// may be called at the same time. Their
// sockets end with this process, with the sandbox, or when they are closed. Connections have
// CloseWrite() error. Use Reset() error to end one that must not look complete, or SetLinger(0)
// and Close if it has no Reset.
type Networker interface {
	// Listen listens on TCP; port 0 means any free port.
	Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	// ListenPacket receives UDP.
	ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error)
	// DialAddr connects to a program that listens on an address of the loopback device, and only
	// there: 127.0.0.0/8 or ::1. Its errors are those of DialPort.
	DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
	PortDialer
}

// PortDialer is the part of [Networker] that reaches programs.
type PortDialer interface {
	// DialPort connects to a program that listens on 127.0.0.1 or, if none does, on ::1. The
	// error wraps [syscall.ECONNREFUSED] if no program listens.
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// Renewer is a [Sandbox] that may be restarted while its network is in use. It then has a new
// network, and sockets of the old one reach nobody.
type Renewer interface {
	// Generation returns a different number after each restart, and possibly after a lost
	// connection.
	Generation(ctx context.Context) (uint64, error)
}

// PortFinder is a [Sandbox] that knows the TCP ports on which its programs listen.
type PortFinder interface {
	// Listens reports whether a program listens on a port where [PortDialer.DialPort] would
	// reach it. It doesn't connect, so programs don't notice.
	Listens(ctx context.Context, port uint16) (bool, error)
}
