package egress

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// Options configure a Proxy; nil and zero fields work.
type Options struct {
	// Policy is the first policy; nil denies everything. See [Proxy.SetPolicy].
	Policy *policy.Policy
	// Session is the session's ID, for records and for the command in a denial. Default none: then a denial names the
	// flag.
	Session string
	// Secret returns the value of a secret by its name. Only injections need it; New and SetPolicy call it.
	Secret func(name string) (string, error)
	// Via is the URL of a proxy, http:// or https://, through which all connections
	// to public names go. It resolves the names, so their addresses aren't checked.
	Via *url.URL
	// Roots verify the servers of terminated connections, and Via. Default the host's.
	Roots *x509.CertPool
	// Journal gets a [Line] for each connection, request and denial. Default none.
	// If it can't be written to, no connection is made.
	Journal Journal
	// Calls returns the running calls, for records. Default none.
	Calls func() []string
	// Resolver and Dialer reach the Internet. Default this process's own. They never decide on access: each address is
	// checked before it is dialed.
	Resolver Resolver
	Dialer   Dialer
	Bounds   Bounds
	// Recorder collects the connections made. Default a new one.
	Recorder *policy.Recorder
	// Before is the traffic of earlier Proxies of the same session.
	Before Traffic
}

// Traffic counts bytes from and to servers.
type Traffic struct {
	In  int64 `json:"in"`
	Out int64 `json:"out"`
}

// Journal is a log; *audit.Log is one. Append is called by one goroutine at a time.
type Journal interface {
	Append(record any) error
}

// Resolver resolves a name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to an address; *net.Dialer is one.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Network has the sockets of a sandbox. The caller of a method owns its result; closing it also closes it inside.
// Connections have deadlines and CloseWrite() error. To end one that must not look complete, use Reset() error, or
// SetLinger(0) and Close if it has no Reset.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
	// DialAddr connects to a program that listens on an address of the sandbox's loopback device.
	DialAddr(ctx context.Context, addr netip.AddrPort) (net.Conn, error)
}

// Bounds limit one sandbox. A zero field means its default. What exceeds a bound per second waits; what exceeds another
// gets an answer with the reason if its protocol has one, and the log has a line.
type Bounds struct {
	Conns     int           // open connections of programs, default 256
	Accepts   int           // new connections per second, default 256; burst the same
	Requests  int           // requests per second that the proxy reads, default 500; burst twice that
	Dials     int           // new connections to servers per second, default 100; burst three times that
	Queue     time.Duration // time that a connection to a server waits for its turn, default 30 s
	Header    int           // bytes of the headers of a request, and of an answer, default 32 KiB
	Headers   int64         // bytes of memory of the headers of all requests and answers, default 32 MiB
	HeaderFor time.Duration // time for a request's headers or a TLS hello, default 10 s
	Connect   time.Duration // time to resolve a name and connect, default 5 s
	Idle      time.Duration // time after which an idle connection ends, default 5 min
	Rate      int64         // bytes per second in both directions, default 50 MB
	In        int64         // bytes from servers in all, default 4 GiB
	Out       int64         // bytes to servers in all, default 64 MiB
	Queries   int           // DNS queries per second, default 2,000; burst the same
	Names     int           // names with their own address, default 1,024
	Lines     int           // lines about requests per second, default 20; burst fifty times that
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{
		Conns: or(b.Conns, 256), Accepts: or(b.Accepts, 256), Requests: or(b.Requests, 500), Dials: or(b.Dials, 100), Queue: or(b.Queue, 30*time.Second), Header: or(b.Header, 32<<10), Headers: or(b.Headers, 32<<20),
		HeaderFor: or(b.HeaderFor, 10*time.Second), Connect: or(b.Connect, 5*time.Second), Idle: or(b.Idle, 5*time.Minute),
		Rate: or(b.Rate, 50_000_000), In: or(b.In, 4<<30), Out: or(b.Out, 64<<20),
		Queries: or(b.Queries, 2000), Names: or(b.Names, 1024), Lines: or(b.Lines, 20),
	}
}

func or[T int | int64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
