package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/wisbox/wisbox/egress/policy"
)

// ServeDNS answers queries until the socket ends or Close. It closes the socket. An allowed name gets one of our
// addresses; other names don't exist. It resolves none.
func (p *Proxy) ServeDNS(pc net.PacketConn) error {
	end := p.opened(pc)
	if end == nil {
		return net.ErrClosed
	}
	defer end()
	buf := make([]byte, maxQuery+1)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) || !passes(err) {
				return err
			}
			continue
		}
		_ = p.slowDown(p.ctx, p.queries, 1, "dns", "DNS queries")
		if answer := p.answerQuery(buf[:n]); answer != nil {
			_, _ = pc.WriteTo(answer, from)
		}
	}
}

const maxQuery = 1232 // maximum bytes of a query

// answerQuery returns the answer to a query, or nil if it gets none.
func (p *Proxy) answerQuery(query []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(query)
	if err != nil || header.Response {
		return nil
	}
	answer := dnsmessage.Header{ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired, RecursionAvailable: true}
	q, err := parser.Question()
	if err != nil || len(query) > maxQuery {
		answer.RCode = dnsmessage.RCodeFormatError
		return pack(answer, nil, nil)
	}
	if _, err := parser.Question(); !errors.Is(err, dnsmessage.ErrSectionDone) {
		answer.RCode = dnsmessage.RCodeFormatError
		return pack(answer, nil, nil)
	}
	if header.OpCode != 0 || q.Class != dnsmessage.ClassINET {
		answer.RCode = dnsmessage.RCodeNotImplemented
		return pack(answer, &q, nil)
	}
	ctx, cancel := p.within(p.ctx)
	defer cancel()
	resource, code := p.resourceFor(ctx, q)
	answer.RCode = code
	return pack(answer, &q, resource)
}

// resourceFor returns the answer to a question: a resource, nil or an error code.
func (p *Proxy) resourceFor(ctx context.Context, q dnsmessage.Question) (dnsmessage.ResourceBody, dnsmessage.RCode) {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return local(q.Type), dnsmessage.RCodeSuccess
	}
	name, err := policy.RequestName(name)
	if err != nil {
		return nil, dnsmessage.RCodeNameError
	}
	if len(p.Policy().Ports(name)) == 0 {
		if q.Type == dnsmessage.TypeA {
			p.note("dns", notAllowed(p.decide(name, 443)))
		}
		return nil, dnsmessage.RCodeNameError
	}
	if q.Type != dnsmessage.TypeA {
		return nil, dnsmessage.RCodeSuccess // the name exists, but has no record of that type
	}
	a, err := p.names.address(ctx, name)
	if err != nil {
		p.note("dns", badGateway(policy.Decision{Host: name}, "it can't get an address in the sandbox: %v", err))
		return nil, dnsmessage.RCodeServerFailure
	}
	return &dnsmessage.AResource{A: a.As4()}, dnsmessage.RCodeSuccess
}

func local(t dnsmessage.Type) dnsmessage.ResourceBody {
	switch t {
	case dnsmessage.TypeA:
		return &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}}
	case dnsmessage.TypeAAAA:
		return &dnsmessage.AAAAResource{AAAA: netip.IPv6Loopback().As16()}
	}
	return nil
}

// pack encodes an answer, or returns nil if that fails.
func pack(h dnsmessage.Header, q *dnsmessage.Question, body dnsmessage.ResourceBody) []byte {
	m := dnsmessage.Message{Header: h}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if body != nil {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: uint32(answerFor / time.Second)}, Body: body}}
	}
	raw, err := m.Pack()
	if err != nil {
		return nil
	}
	return raw
}
