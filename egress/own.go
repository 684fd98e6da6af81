package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"github.com/wisbox/wisbox/egress/policy"
)

// ownName is the host name of a sandbox.
const ownName = "wisbox"

// ownAddresses returns the addresses of the sandbox itself that a host stands for, in the order in which to try them;
// none if it is another host. Programs ask the proxy for them although NO_PROXY names them, because each client reads
// it in its own way.
func ownAddresses(host string) []netip.Addr {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || host == ownName || strings.HasSuffix(host, ".localhost") {
		return loopback
	}
	if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		host = strings.TrimSuffix(inner, "]")
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addr = oldAddress(host)
	}
	switch addr = addr.WithZone("").Unmap(); {
	case !addr.IsValid():
		return nil
	case addr.IsUnspecified(): // to connect to it is to connect to this machine
		return loopback
	case addr.IsLoopback():
		return []netip.Addr{addr}
	}
	return nil
}

// oldAddress reads an address of IPv4 as inet_aton does: fewer than four numbers, octal and hexadecimal ones.
func oldAddress(host string) netip.Addr {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}
	}
	var value uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (4 - i) // the last number fills the rest
		}
		digits, base := part, 10
		if hex, found := strings.CutPrefix(part, "0x"); found {
			digits, base = hex, 16
		} else if len(part) > 1 && part[0] == '0' {
			base = 8
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || n>>bits != 0 {
			return netip.Addr{}
		}
		value |= n << (32 - 8*i - bits)
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)})
}

// dialOwn connects to a port of the sandbox itself. No rule is needed and nothing is recorded: programs reach it
// without the proxy too.
func (p *Proxy) dialOwn(ctx context.Context, host string, port uint16) (net.Conn, error) {
	d := policy.Decision{Host: host, Port: port}
	if p.inside == nil {
		return nil, refuse(d, "it is the sandbox's own address; connect to it without the proxy")
	}
	ctx, cancel := p.within(ctx)
	defer cancel()
	var first error
	for _, addr := range ownAddresses(host) {
		c, err := p.inside.DialAddr(ctx, netip.AddrPortFrom(addr, port))
		if err == nil {
			linger(c, cutAtDeath)
			return &own{Conn: c, p: p}, nil
		}
		if first == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			first = err
		}
	}
	if errors.Is(first, syscall.ECONNREFUSED) {
		return nil, badGateway(d, "no program of the session listens there")
	}
	return nil, badGateway(d, "the session's own port can't be reached: %s", connectProblem(first))
}

// own is a connection to a program of the sandbox. It has the rate of the others, because their bytes cost this machine
// as much.
type own struct {
	net.Conn
	p *Proxy
}

func (o *own) NetConn() net.Conn { return o.Conn }
func (o *own) CloseWrite() error { return closeWrite(o.Conn) }

func (o *own) Close() error {
	linger(o.Conn, inOrder)
	return o.Conn.Close()
}

func (o *own) Read(b []byte) (int, error) {
	n, err := o.Conn.Read(b[:min(len(b), chunk)])
	o.p.pace(n)
	return n, err
}

// connectOwn serves a tunnel to a port of the sandbox itself, with any bytes.
func (p *Proxy) connectOwn(w http.ResponseWriter, r *http.Request, host string, port uint16) {
	up, err := p.dialOwn(context.WithoutCancel(r.Context()), host, port)
	if err != nil {
		p.answerConnect(w, asRefusal(policy.Decision{Host: host, Port: port}, err))
		return
	}
	c := hijack(w, established)
	if c == nil {
		_ = up.Close()
		return
	}
	join(c, up)
}

// forwarded are the headers about other proxies, which a program may have set to test its server.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"}

// serveOwn passes on a request to a server of the sandbox itself.
func (p *Proxy) serveOwn(w http.ResponseWriter, r *http.Request, s site) {
	d := policy.Decision{Host: s.host, Port: s.port}
	if s.tls { // programs may trust a certificate that the proxy doesn't know
		bad := refuse(d, "it is the sandbox's own address; connect to it without the proxy, or with CONNECT")
		bad.status = http.StatusBadRequest
		p.answer(w, bad)
		return
	}
	target := *r.URL
	target.Scheme = "http"
	(&httputil.ReverseProxy{
		Transport: p.toOwn, FlushInterval: -1, BufferPool: pool{}, ErrorLog: serverLog, ModifyResponse: takeHeads,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL, pr.Out.Host = &target, r.Host
			for _, name := range forwarded {
				if sent, found := pr.In.Header[name]; found {
					pr.Out.Header[name] = sent
				}
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			p.answer(w, asRefusal(d, err))
		},
	}).ServeHTTP(w, r)
}
