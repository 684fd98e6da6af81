package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// dial connects to a host that the policy allows. It is the only way to a server: decide, resolve once, check each
// address, and connect to one that passed.
func (p *Proxy) dial(ctx context.Context, kind, host string, port uint16) (*link, error) {
	d := p.decide(host, port)
	if !d.Allowed {
		return nil, notAllowed(d)
	}
	if spent := p.spent(d); spent != nil {
		return nil, spent
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(p.ctx, cancel)
	defer stop()
	if err := p.turn(ctx, kind); err != nil {
		return nil, badGateway(d, "too many new connections: this one waited %s for its turn; make fewer, or use each for more", p.opts.Bounds.Queue)
	}
	ctx, cancel = p.within(ctx)
	defer cancel()
	if p.opts.Via != nil && d.Reach == policy.Public {
		c, err := p.dialVia(ctx, d)
		if err != nil {
			return nil, err
		}
		return p.newLink(c, d, kind, netip.AddrPort{})
	}
	addrs, err := p.resolve(ctx, d)
	if err != nil {
		return nil, err
	}
	return p.dialOne(ctx, kind, d, addrs)
}

// turn waits until the session may make another connection to a server. The places of programs' connections bound the
// number of those that wait.
func (p *Proxy) turn(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Bounds.Queue)
	defer cancel()
	return p.slowDown(ctx, p.dials, 1, kind, "new connections to servers")
}

var loopback = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}

const maxAddresses = 16

// resolve returns the permitted addresses of a host.
func (p *Proxy) resolve(ctx context.Context, d policy.Decision) ([]netip.Addr, error) {
	if d.Reach == policy.Host {
		return loopback, nil
	}
	all, err := p.opts.Resolver.LookupNetIP(ctx, "ip", d.Host+".") // no search domains
	if err != nil || len(all) == 0 {
		if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound || err == nil {
			return nil, badGateway(d, "the name doesn't resolve")
		}
		return nil, badGateway(d, "the name can't be resolved now; try again")
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil, badGateway(d, "this machine's own addresses are unknown, so no address can be checked")
	}
	var may []netip.Addr
	var refused error
	for _, a := range all[:min(len(all), maxAddresses)] {
		a = a.Unmap()
		if err := policy.CheckAddress(a, d.Reach, own); err != nil {
			refused = errors.Join(err, refused)
			continue
		}
		may = append(may, a)
	}
	if len(may) == 0 {
		return nil, wrongAddress(d, refused, all, own)
	}
	return may, nil
}

// wrongAddress returns the reason why no address is permitted, with a rule that helps, if there is one.
func wrongAddress(d policy.Decision, err error, all []netip.Addr, own []net.Addr) *refusal {
	first, _, _ := strings.Cut(err.Error(), "\n")
	r := refuse(d, "%s", first)
	for _, a := range all {
		if policy.CheckAddress(a.Unmap(), policy.Private, own) == nil {
			r.allow = fmt.Sprintf("private:%s:%d", d.Host, d.Port)
			if d.Raw {
				r.allow = strings.Replace(r.allow, "private:", "private:tcp:", 1)
			}
			break
		}
	}
	return r
}

// dialOne connects to the first address that answers. Each gets a share of the remaining time.
func (p *Proxy) dialOne(ctx context.Context, kind string, d policy.Decision, addrs []netip.Addr) (*link, error) {
	var last error
	for i, a := range addrs {
		to := netip.AddrPortFrom(a, d.Port)
		one, cancel := share(ctx, len(addrs)-i)
		c, err := p.dialAddr(one, d, to)
		cancel()
		if err == nil {
			return p.newLink(c, d, kind, to)
		}
		if errors.Is(err, policy.ErrAddress) {
			return nil, refuse(d, "%v", err)
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, badGateway(d, "%s", connectProblem(last))
}

// share returns a context for the first of several tries, with its share of the remaining time.
func share(ctx context.Context, of int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok || of <= 1 {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithTimeout(ctx, max(left/time.Duration(of), min(left, time.Second)))
}

func connectProblem(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "the server refuses the connection"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "the server can't be reached"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return "the server doesn't answer in time"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "the server doesn't answer in time"
	}
	return "the connection to the server failed"
}

func (p *Proxy) dialAddr(ctx context.Context, d policy.Decision, to netip.AddrPort) (net.Conn, error) {
	if p.opts.Dialer != nil {
		return p.opts.Dialer.DialContext(ctx, "tcp", to.String())
	}
	dialer := net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return checkAgain(d, address) }}
	return dialer.DialContext(ctx, "tcp", to.String())
}

// checkAgain checks an address right before connect(2), independent of earlier checks.
func checkAgain(d policy.Decision, address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errors.Join(policy.ErrAddress, err)
	}
	if d.Reach == policy.Host {
		if to.Addr().IsLoopback() {
			return nil
		}
		return policy.ErrAddress
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return errors.Join(policy.ErrAddress, err)
	}
	return policy.CheckAddress(to.Addr(), d.Reach, own)
}

// transports returns the transports for requests to servers: a direct one, one for plain HTTP through Via, and one for
// servers of the sandbox itself.
func (p *Proxy) transports() (direct, indirect, toOwn *http.Transport) {
	base := func() *http.Transport {
		return &http.Transport{
			DisableCompression: true, MaxIdleConnsPerHost: 8, MaxIdleConns: 32, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: p.opts.Bounds.HeaderFor, ExpectContinueTimeout: time.Second,
			MaxResponseHeaderBytes: int64(p.opts.Bounds.Header), ReadBufferSize: 32 << 10, WriteBufferSize: 32 << 10,
		}
	}
	direct, indirect, toOwn = base(), base(), base()
	direct.ForceAttemptHTTP2 = true
	direct.TLSClientConfig = p.clientTLS("")
	direct.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		kind, _ := ctx.Value(kindKey{}).(string)
		host, port, err := splitTarget(address)
		if err != nil {
			return nil, err
		}
		if s, ok := ctx.Value(siteKey{}).(site); ok && s.host == host && s.port == port {
			if up := s.dialed.take(); up != nil {
				return up, nil
			}
		}
		return connOrNil(p.dial(ctx, kind, host, port))
	}
	indirect.Proxy = http.ProxyURL(p.opts.Via)
	indirect.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		d, _ := ctx.Value(decisionKey{}).(policy.Decision)
		ctx, cancel := p.within(ctx)
		defer cancel()
		c, err := p.dialViaTCP(ctx, d)
		if err != nil {
			return nil, err
		}
		return connOrNil(p.newLink(c, d, "http", netip.AddrPort{}))
	}
	indirect.TLSClientConfig = p.clientTLS("") // for a proxy that speaks TLS itself
	indirect.DisableKeepAlives = true          // each connection serves one host, as recorded
	toOwn.DialContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		host, port, err := splitTarget(address)
		if err != nil {
			return nil, err
		}
		return p.dialOwn(ctx, host, port)
	}
	toOwn.DisableKeepAlives = true // a server that is being developed ends often
	return direct, indirect, toOwn
}

// connOrNil keeps a nil link from becoming a net.Conn that isn't nil.
func connOrNil(l *link, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// kindKey and decisionKey pass values of a request to its transport's dial.
type (
	kindKey     struct{}
	decisionKey struct{}
)

// splitTarget splits HOST:PORT strictly.
func splitTarget(target string) (host string, port uint16, err error) {
	i := strings.LastIndexByte(target, ':')
	if i < 0 {
		return target, 0, errors.New("the port is missing")
	}
	port, err = policy.ParsePort(target[i+1:])
	return target[:i], port, err
}
