package sandbox

import (
	"context"
	"net"
	"net/netip"
)

// Networker is a [Sandbox] whose network this process can use: the sockets are the
// sandbox's own, made inside and handed over. Where the way to the sandbox carries no
// descriptors, as with gVisor or a Podman on another machine, they stay inside and what
// goes over them is carried, which is slower. The sandbox has no other network than its
// loopback device, 127.0.0.0/8. The methods may be called at the same time. What they
// return ends with this process, with the sandbox, or when it is closed. Connections have
// CloseWrite() error. One that must not look complete is ended by its Reset() error, or by
// SetLinger(0) and Close where it has none.
type Networker interface {
	// Listen listens on TCP; port 0 is any.
	Listen(ctx context.Context, addr netip.AddrPort) (net.Listener, error)
	// ListenPacket receives UDP.
	ListenPacket(ctx context.Context, addr netip.AddrPort) (net.PacketConn, error)
	PortDialer
}

// PortDialer is the part of [Networker] that reaches programs.
type PortDialer interface {
	// DialPort connects to a program that listens on 127.0.0.1 or, where none does, on ::1.
	// It wraps [syscall.ECONNREFUSED] where nothing listens.
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// Renewer is a [Sandbox] that may be started again under whoever uses its network. Then
// the network is another one, and sockets of the one before reach nobody.
type Renewer interface {
	// Generation is another number after each such start, and may be after a lost
	// connection too.
	Generation(ctx context.Context) (uint64, error)
}

// PortFinder is a [Sandbox] that sees on which of its TCP ports programs listen.
type PortFinder interface {
	// Listens reports whether a program listens on a port, where [PortDialer.DialPort]
	// would find it. It connects to nothing, so no program sees the look.
	Listens(ctx context.Context, port uint16) (bool, error)
}
