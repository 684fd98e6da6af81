package egress

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// Line is a record of the egress log.
type Line struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session,omitempty"`
	Calls   []string  `json:"calls,omitempty"` // in flight
	// Event is open or close for a connection to a server, request (HTTP that the proxy can read), denied, failed
	// (although the rules allow it), or slowed (programs wait because of a bound).
	Event   string `json:"event"`
	Kind    string `json:"kind"` // connect, http, https (terminated), transparent, dns; none for a bound of all
	Host    string `json:"host"`
	Port    int    `json:"port,omitempty"`
	Address string `json:"address,omitempty"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Allow   string `json:"allow,omitempty"`  // the rule that would allow it
	Advice  string `json:"advice,omitempty"` // what else helps
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"` // without the query; only of terminated connections
	Status  int    `json:"status,omitempty"`
	In      int64  `json:"bytes_in,omitempty"`
	Out     int64  `json:"bytes_out,omitempty"`
	MS      int64  `json:"ms,omitempty"`
	// Count is the number of equal denials or waits within a minute after the first; for a request, the number of earlier ones
	// without a line.
	Count int64 `json:"count,omitempty"`
}

// write appends a line.
func (p *Proxy) write(l Line) error {
	if p.opts.Journal == nil {
		return nil
	}
	l.Time, l.Session = time.Now().UTC(), p.opts.Session
	l.Host, l.Path, l.Method = clean(l.Host, 253), clean(l.Path, 300), clean(l.Method, 20)
	l.Reason = clean(l.Reason, 300)
	if p.opts.Calls != nil {
		l.Calls = p.opts.Calls()
	}
	p.journal.Lock()
	defer p.journal.Unlock()
	if p.sealed {
		return net.ErrClosed
	}
	return p.opts.Journal.Append(l)
}

// equal identifies equal denials.
type equal struct {
	event, kind, host, reason string
	port                      int
}

// coalesced counts equal denials since their line was written.
type coalesced struct {
	line  Line
	since time.Time
}

const (
	coalesceFor = time.Minute
	maxEqual    = 256
)

// note records a refusal for the running call, and in the log.
func (p *Proxy) note(kind string, r *refusal) {
	l := Line{Event: "failed", Kind: kind, Host: r.host, Port: int(r.port), Rule: r.rule, Reason: r.reason, Allow: r.allow, Advice: r.advice}
	if r.denied() {
		l.Event = "denied"
		p.keep(p.denial(r))
	}
	if l, first := p.count(l); first {
		_ = p.write(l) // the request is denied even if that fails
	}
}

// count returns the line of a refusal, and reports whether it is new. It only counts equal ones, and also different
// ones once there are many, so that a program that makes up names doesn't fill the log.
func (p *Proxy) count(l Line) (line Line, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := equal{l.Event, l.Kind, strings.ToLower(l.Host), l.Reason, l.Port}
	if p.equal[key] == nil && len(p.equal) >= maxEqual {
		l.Host, l.Port, l.Rule, l.Reason, l.Allow, l.Advice = "", 0, "", "many hosts", "", ""
		key = equal{event: l.Event, kind: l.Kind, reason: l.Reason}
	}
	if c := p.equal[key]; c != nil {
		c.line.Count++
		return l, false
	}
	p.equal[key] = &coalesced{line: l, since: time.Now()}
	return l, true
}

// flush writes the counts of all refusals, or only of old ones.
func (p *Proxy) flush(all bool) {
	var due []Line
	p.mu.Lock()
	for key, c := range p.equal {
		if all || time.Since(c.since) >= coalesceFor {
			if c.line.Count > 0 {
				due = append(due, c.line)
			}
			delete(p.equal, key)
		}
	}
	p.mu.Unlock()
	for _, l := range due {
		_ = p.write(l)
	}
}

// request records a request. Above the maximum rate it only counts requests, so that rotation doesn't remove the lines
// about connections.
func (p *Proxy) request(l Line) {
	l.Event = "request"
	if !p.lines.Allow() {
		p.unwritten.Add(1)
		return
	}
	l.Count = p.unwritten.Swap(0)
	_ = p.write(l)
}

func lineOf(d policy.Decision, kind string) Line {
	return Line{Kind: kind, Host: d.Host, Port: int(d.Port), Rule: d.Rule}
}

func (l Line) at(a netip.AddrPort) Line {
	if a.IsValid() {
		l.Address = a.String()
	}
	return l
}
