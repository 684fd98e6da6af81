package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/wisbox/wisbox/egress/policy"
)

// link is a connection to a server. Each of its bytes counts against the sandbox's limits, and it is reset if a new
// policy doesn't allow it.
type link struct {
	net.Conn
	p       *Proxy
	d       policy.Decision
	kind    string
	addr    netip.AddrPort
	began   time.Time
	in, out atomic.Int64
	touched atomic.Int64
	reason  atomic.Pointer[string] // the reason if it was cut
	once    sync.Once
}

// Reasons for cutting links.
const (
	rulesChanged = "the rules changed"
	sessionEnds  = "the session ends"
)

// newLink registers a connection, or closes it if that fails.
func (p *Proxy) newLink(c net.Conn, d policy.Decision, kind string, addr netip.AddrPort) (*link, error) {
	l := &link{Conn: c, p: p, d: d, kind: kind, addr: addr, began: time.Now()}
	l.touch()
	linger(c, cutAtDeath)
	line := lineOf(d, kind).at(addr)
	line.Event = "open"
	if err := p.write(line); err != nil {
		reset(c)
		return nil, badGateway(d, "the log of connections can't be written, so no connection is made")
	}
	if problem := p.addLink(l); problem != "" {
		l.cut(problem)
		return nil, badGateway(d, "%s", problem)
	}
	if now := p.decide(d.Host, d.Port); !now.Same(d) { // the policy has changed meanwhile
		l.cut(rulesChanged)
		return nil, refuse(d, "the rules changed; try again")
	}
	p.opts.Recorder.Used(d)
	return l, nil
}

// addLink returns the reason why no further link is allowed, or "".
func (p *Proxy) addLink(l *link) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return sessionEnds
	case len(p.links) >= p.opts.Bounds.Conns:
		return fmt.Sprintf("%d connections are open already; close some", len(p.links))
	}
	p.links[l] = struct{}{}
	return ""
}

func (l *link) NetConn() net.Conn { return l.Conn }
func (l *link) touch()            { l.touched.Store(int64(time.Since(l.p.began))) }

func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b[:min(len(b), chunk)])
	l.touch()
	l.in.Add(int64(n))
	if total := l.p.in.Add(int64(n)); total > l.p.opts.Bounds.In {
		l.overspent()
		return 0, errReset
	}
	l.p.pace(n)
	return n, err
}

// chunk is the maximum number of bytes sent at once.
const chunk = 128 << 10

func (l *link) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if total := l.p.out.Add(int64(len(part))); total > l.p.opts.Bounds.Out {
			l.overspent()
			return written, errReset
		}
		l.p.pace(len(part))
		n, err := l.Conn.Write(part)
		l.touch()
		l.out.Add(int64(n))
		written += n
		if err != nil {
			return written, err
		}
		b = b[n:]
	}
	return written, nil
}

// pace waits until the rate allows n more bytes.
func (p *Proxy) pace(n int) { _ = p.slowDown(p.ctx, p.rate, n, "", "bytes") }

// spent returns the refusal of connections if a limit in bytes is used up, or nil.
func (p *Proxy) spent(d policy.Decision) *refusal {
	switch b := p.opts.Bounds; {
	case p.out.Load() >= b.Out:
		r := refuse(d, "the session has sent its %d bytes", b.Out)
		r.advice = "--egress-out SIZE sets another limit, for a new session"
		return r
	case p.in.Load() >= b.In:
		r := refuse(d, "the session has received its %d bytes", b.In)
		r.advice = "start a new session"
		return r
	}
	return nil
}

// overspent cuts a link that used up a limit in bytes. The running call gets the reason, because the program only sees a
// reset.
func (l *link) overspent() {
	if r := l.p.spent(l.d); r != nil {
		l.p.note(l.kind, r)
		l.cut(r.reason)
	}
}

// slowDown waits until a limiter allows n more of something, and says so in the log.
func (p *Proxy) slowDown(ctx context.Context, l *rate.Limiter, n int, kind, what string) error {
	if l.AllowN(time.Now(), n) {
		return nil
	}
	p.slowed(kind, fmt.Sprintf("more than %.0f %s a second", l.Limit(), what))
	return l.WaitN(ctx, n)
}

// slowed writes to the log that programs wait because of a bound, at most once a minute for each.
func (p *Proxy) slowed(kind, why string) {
	if l, first := p.count(Line{Event: "slowed", Kind: kind, Reason: why + "; they wait"}); first {
		_ = p.write(l)
	}
}

// cut ends a link by a reset; the log gets the reason.
func (l *link) cut(reason string) {
	l.reason.CompareAndSwap(nil, &reason)
	reset(l)
}

func (l *link) CloseWrite() error { return closeWrite(l.Conn) }

func (l *link) Close() error {
	linger(l.Conn, inOrder)
	err := l.Conn.Close()
	l.once.Do(l.end)
	return err
}

func (l *link) end() {
	l.p.mu.Lock()
	delete(l.p.links, l)
	l.p.mu.Unlock()
	line := lineOf(l.d, l.kind).at(l.addr)
	line.Event, line.In, line.Out, line.MS = "close", l.in.Load(), l.out.Load(), time.Since(l.began).Milliseconds()
	if reason := l.reason.Load(); reason != nil {
		line.Reason = *reason
	}
	_ = l.p.write(line)
}

// janitor closes idle connections and writes counted refusals, until the Proxy closes.
func (p *Proxy) janitor() {
	tick := time.NewTicker(max(p.opts.Bounds.Idle/10, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.sweep()
			p.flush(false)
		case <-p.ctx.Done():
			return
		}
	}
}

func (p *Proxy) sweep() {
	old := int64(time.Since(p.began) - p.opts.Bounds.Idle)
	var links []*link
	var conns []*conn
	p.mu.Lock()
	for l := range p.links {
		if l.touched.Load() < old {
			links = append(links, l)
		}
	}
	for c := range p.conns {
		if c.touched.Load() < old {
			conns = append(conns, c)
		}
	}
	p.mu.Unlock()
	for _, l := range links {
		l.cut("no byte for " + p.opts.Bounds.Idle.String())
	}
	for _, c := range conns {
		p.note("", badGateway(policy.Decision{}, "a program's connection had no byte for %s", p.opts.Bounds.Idle))
		reset(c)
	}
}

// within limits a context to the time for connecting.
func (p *Proxy) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, p.opts.Bounds.Connect)
}
