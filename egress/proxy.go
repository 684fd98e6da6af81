// Package egress lets the programs of a sandbox without a network connect to the hosts that its rules allow, and to no
// others. Package policy has the rules.
//
// It knows nothing of containers. The caller provides a [Network] that opens sockets inside the sandbox; this process
// listens on them, so nothing listens outside and nothing in the sandbox forwards. [Proxy.Start] serves there:
//
//   - a proxy: CONNECT HOST:PORT, and requests for http:// and https:// URLs;
//   - for programs without proxy support, a DNS server that gives each allowed name its
//     own address in 127.16.0.0/16, with listeners on it.
//
// On each of these ways a connection is either TLS, which must begin with a hello for HOST, or HTTP, whose requests must
// be for HOST and are rewritten and sent on. If a host's rule restricts requests or adds a secret, TLS ends here, with a
// certificate of an authority that is made for these hosts and that [Proxy.Roots] returns. The proxy also connects to
// the sandbox's own ports, which need no rule.
//
// Names are resolved on the host, and only when a program connects to an allowed one. Each address is checked before it
// is dialed. A denial has the reason and the command that allows the connection.
//
// It doesn't prevent programs from sending data to an allowed host, within [Bounds].
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/egress/policy"
)

// Proxy connects one sandbox's programs to the hosts that its policy allows. Its
// methods may be called from many goroutines at once.
type Proxy struct {
	opts   Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	began  time.Time
	state  atomic.Pointer[state]
	change sync.Mutex // of the state
	wg     sync.WaitGroup

	front, back      *http.Server
	handed           *handover // connections for the server back
	direct, indirect *http.Transport
	toOwn            *http.Transport // to servers of the sandbox itself
	inside           Network         // nil before Start
	names            *names

	places    chan struct{} // one slot for each connection of a program
	accepts   *rate.Limiter
	requests  *rate.Limiter
	dials     *rate.Limiter
	rate      *rate.Limiter
	lines     *rate.Limiter
	queries   *rate.Limiter
	in, out   atomic.Int64
	unwritten atomic.Int64
	headers   atomic.Int64 // bytes of those of requests and answers

	journal sync.Mutex // serialises Append
	sealed  bool       // nothing is appended any more

	mu      sync.Mutex
	closed  bool
	open    map[*io.Closer]struct{} // listeners; pointers because their types may not be hashable
	conns   map[*conn]struct{}
	links   map[*link]struct{}
	equal   map[equal]*coalesced
	last    []numbered
	denials int64
}

// state holds the values that SetPolicy changes together.
type state struct {
	policy      *policy.Policy
	secrets     map[string]string
	authorities []*authority
}

// New returns a Proxy that serves nothing yet. The caller closes it.
func New(opts *Options) (*Proxy, error) {
	p := &Proxy{began: time.Now(), open: map[*io.Closer]struct{}{}, conns: map[*conn]struct{}{}, links: map[*link]struct{}{}, equal: map[equal]*coalesced{}}
	if opts != nil {
		p.opts = *opts
	}
	p.opts.Bounds = p.opts.Bounds.withDefaults()
	if p.opts.Recorder == nil {
		p.opts.Recorder = &policy.Recorder{}
	}
	if p.opts.Resolver == nil {
		p.opts.Resolver = net.DefaultResolver
	}
	if err := checkVia(p.opts.Via); err != nil {
		return nil, err
	}
	b := p.opts.Bounds
	p.places = make(chan struct{}, b.Conns)
	p.accepts = rate.NewLimiter(rate.Limit(b.Accepts), b.Accepts)
	p.requests = rate.NewLimiter(rate.Limit(b.Requests), 2*b.Requests)
	p.dials = rate.NewLimiter(rate.Limit(b.Dials), 3*b.Dials)
	p.rate = rate.NewLimiter(rate.Limit(b.Rate), chunk+int(min(b.Rate, 16<<20)))
	p.lines = rate.NewLimiter(rate.Limit(b.Lines), 50*b.Lines)
	p.queries = rate.NewLimiter(rate.Limit(b.Queries), b.Queries)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.state.Store(&state{})
	p.in.Store(p.opts.Before.In)
	p.out.Store(p.opts.Before.Out)
	p.names = newNames(p)
	p.makeServers()
	if err := p.SetPolicy(p.opts.Policy); err != nil {
		p.cancel()
		return nil, err
	}
	p.wg.Go(p.janitor)
	p.wg.Go(func() { _ = p.back.Serve(p.handed) })
	return p, nil
}

// serverLog discards net/http's messages about invalid requests: the log of connections has them.
var serverLog = log.New(io.Discard, "", 0)

func (p *Proxy) makeServers() {
	b := p.opts.Bounds
	server := func(handler http.HandlerFunc) *http.Server {
		return &http.Server{
			Handler: p.headed(p.paced(handler)), ReadHeaderTimeout: b.HeaderFor, IdleTimeout: b.Idle, MaxHeaderBytes: b.Header,
			ErrorLog: serverLog, DisableGeneralOptionsHandler: true, ConnContext: withConn,
			BaseContext: func(net.Listener) context.Context { return p.ctx },
			Protocols:   new(http.Protocols),
		}
	}
	p.front, p.back = server(p.serveFront), server(p.serveBack)
	p.front.Protocols.SetHTTP1(true)
	p.back.Protocols.SetHTTP1(true)
	p.back.Protocols.SetHTTP2(true)
	p.back.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 64, MaxReceiveBufferPerConnection: 256 << 10, MaxReceiveBufferPerStream: 128 << 10}
	p.handed = &handover{ctx: p.ctx, conns: make(chan net.Conn)}
	p.direct, p.indirect, p.toOwn = p.transports()
}

// paced limits the rate of requests, because their cost isn't charged to the sandbox.
func (p *Proxy) paced(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !p.enter() {
			return
		}
		defer p.wg.Done()
		if p.slowDown(r.Context(), p.requests, 1, "", "requests") == nil {
			handler(w, r)
		}
	}
}

// SetPolicy changes the rules from now on. Connections that the new ones don't allow, or treat differently, are reset.
// On an error the old rules stay.
func (p *Proxy) SetPolicy(to *policy.Policy) error {
	p.change.Lock()
	defer p.change.Unlock()
	secrets, err := p.readSecrets(to)
	if err != nil {
		return err
	}
	authorities, err := authoritiesFor(to.Terminated(), p.state.Load().authorities)
	if err != nil {
		return err
	}
	p.state.Store(&state{policy: to, secrets: secrets, authorities: authorities})
	for _, l := range p.allLinks() {
		if !p.decide(l.d.Host, l.d.Port).Same(l.d) {
			l.cut(rulesChanged)
		}
	}
	p.direct.CloseIdleConnections()
	p.indirect.CloseIdleConnections()
	p.names.keepAllowed()
	return nil
}

func (p *Proxy) readSecrets(to *policy.Policy) (map[string]string, error) {
	values := map[string]string{}
	for _, i := range to.Injections() {
		if p.opts.Secret == nil {
			return nil, fmt.Errorf("inject %q: there are no secrets; give one named %s", i, i.Secret)
		}
		value, err := p.opts.Secret(i.Secret)
		if err != nil {
			return nil, fmt.Errorf("inject %q: secret %s: %w", i, i.Secret, err)
		}
		if value == "" || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("inject %q: secret %s is empty or has a line break or control character, which a header can't contain", i, i.Secret)
		}
		values[i.Secret] = value
	}
	return values, nil
}

// Policy returns the current rules.
func (p *Proxy) Policy() *policy.Policy { return p.state.Load().policy }

// Recorded returns rules that allow exactly the connections made.
func (p *Proxy) Recorded() []string { return p.opts.Recorder.Rules() }

// Traffic returns the bytes so far, including [Options].Before.
func (p *Proxy) Traffic() Traffic { return Traffic{In: p.in.Load(), Out: p.out.Load()} }

// Roots returns the certificates of our own authorities as PEM, for the programs' bundle. It is empty if no connection
// is terminated, and changes with the policy.
func (p *Proxy) Roots() []byte {
	var pem []byte
	for _, a := range p.state.Load().authorities {
		pem = append(pem, a.pem...)
	}
	return pem
}

func (p *Proxy) decide(host string, port uint16) policy.Decision {
	return p.state.Load().policy.Decide(host, port)
}

// Places describes the servers of [Proxy.Start] inside the sandbox.
type Places struct {
	// Proxy is the URL of the proxy there.
	Proxy string
	// Transparent reports whether programs without proxy support are served. If not, Start also returns an error with
	// the reason.
	Transparent bool
	Problem     error
}

var errNoRule = errors.New("egress: no rule allows anything; give one, or serve nothing")

// proxyPort is tried first; a program may use it.
const proxyPort, proxyPorts = 3128, 20

// Start serves in a sandbox: the proxy at 127.0.0.1:3128, or the next port that is
// free, and DNS at 127.0.0.1:53. It fails if the proxy can't listen. If only DNS can't, it returns the places together
// with an error. Without a rule it fails and doesn't listen. It may be called once: another sandbox needs another
// Proxy.
func (p *Proxy) Start(ctx context.Context, network Network) (Places, error) {
	if p.Policy().Empty() {
		return Places{}, errNoRule
	}
	l, err := p.listenFront(ctx, network)
	if err != nil {
		return Places{}, err
	}
	p.inside = network
	p.wg.Go(func() { _ = p.Serve(l) })
	places := Places{Proxy: "http://" + l.Addr().String()}
	pc, err := network.ListenPacket(ctx, "udp4", "127.0.0.1:53")
	if err != nil {
		places.Problem = err
		return places, nil
	}
	p.names.mu.Lock()
	p.names.network = network
	p.names.mu.Unlock()
	p.wg.Go(func() { _ = p.ServeDNS(pc) })
	places.Transparent = true
	return places, nil
}

func (p *Proxy) listenFront(ctx context.Context, network Network) (l net.Listener, err error) {
	for port := proxyPort; port < proxyPort+proxyPorts; port++ {
		l, err = network.Listen(ctx, "tcp4", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return l, err
}

// Serve serves the proxy on a listener, until the listener ends or Close. It closes the listener.
func (p *Proxy) Serve(l net.Listener) error {
	end := p.opened(l)
	if end == nil {
		return net.ErrClosed
	}
	defer end()
	return p.front.Serve(accepting{l, p})
}

// opened registers a listener: Close closes it and waits until end is called. end is nil if the Proxy is closed.
func (p *Proxy) opened(c io.Closer) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return nil
	}
	p.wg.Add(1)
	p.open[&c] = struct{}{}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		delete(p.open, &c)
		p.mu.Unlock()
		p.wg.Done()
	}
}

// enter counts a goroutine that Close waits for, and reports whether it may begin.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

func (p *Proxy) add(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

func (p *Proxy) allLinks() (all []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		all = append(all, l)
	}
	return all
}

// Close ends all listeners and resets all connections. It returns when nothing of
// the Proxy runs any more; the Journal isn't used afterwards. The error is nil.
func (p *Proxy) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	var open []io.Closer
	for c := range p.open {
		open = append(open, *c)
	}
	conns := slices.Collect(mapKeys(p.conns))
	p.mu.Unlock()
	p.cancel()
	for _, c := range open {
		_ = c.Close()
	}
	for _, l := range p.allLinks() {
		l.cut(sessionEnds)
	}
	for _, c := range conns {
		reset(c)
	}
	_, _ = p.front.Close(), p.back.Close() // their connections are closed already
	p.direct.CloseIdleConnections()
	p.indirect.CloseIdleConnections()
	p.wg.Wait()
	p.flush(true)
	p.journal.Lock()
	p.sealed = true
	p.journal.Unlock()
	return nil
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
