package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
	"github.com/wisbox/wisbox/internal/patience"
)

// site is the only target of a connection.
type site struct {
	host   string
	port   uint16
	kind   string // for the log
	tls    bool   // its server is reached over TLS
	dialed *spare
}

// spare is a connection to a server that was made before the first request came. nil has none.
type spare struct{ up atomic.Pointer[link] }

// take returns the connection to its only user, or nil.
func (s *spare) take() *link {
	if s == nil {
		return nil
	}
	return s.up.Swap(nil)
}

type (
	connKey struct{}
	siteKey struct{}
)

// withConn gives handlers the connection of a request and its site.
func withConn(ctx context.Context, c net.Conn) context.Context {
	ctx = context.WithValue(ctx, connKey{}, c)
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if h, ok := c.(*handed); ok {
		ctx = context.WithValue(ctx, siteKey{}, h.site)
	}
	return ctx
}

// serveFront answers requests to the proxy's own port.
func (p *Proxy) serveFront(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		p.serveConnect(w, r)
		return
	}
	s := site{kind: "http", port: 80}
	switch r.URL.Scheme {
	case "https", "wss": // for clients without CONNECT; the server is reached over TLS, as they asked
		s = site{kind: "https", port: 443, tls: true}
	case "http", "ws":
	default:
		s.port = 0
	}
	if s.port == 0 || r.URL.Host == "" || r.URL.User != nil || r.URL.Opaque != "" {
		p.refuseRequest(w, "http", &refusal{status: http.StatusBadRequest, host: r.Host, reason: "this is the proxy to the hosts that are allowed; send CONNECT HOST:PORT or GET http://HOST/"})
		return
	}
	s.host = r.URL.Host
	if r.URL.Port() != "" || strings.HasSuffix(s.host, ":") {
		var err error
		if s.host, s.port, err = splitTarget(r.URL.Host); err != nil {
			p.refuseRequest(w, s.kind, &refusal{status: http.StatusBadRequest, host: s.host, reason: err.Error()})
			return
		}
	}
	if ownAddresses(s.host) != nil {
		p.serveOwn(w, r, s)
		return
	}
	p.forward(w, r, s)
}

func (p *Proxy) refuseRequest(w http.ResponseWriter, kind string, r *refusal) {
	p.note(kind, r)
	p.answer(w, r)
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// serveConnect opens a tunnel.
func (p *Proxy) serveConnect(w http.ResponseWriter, r *http.Request) {
	const kind = "connect"
	host, port, err := splitTarget(r.RequestURI)
	if err != nil {
		p.refuseConnect(w, &refusal{status: http.StatusBadRequest, host: host, reason: err.Error()})
		return
	}
	if ownAddresses(host) != nil {
		p.connectOwn(w, r, host, port)
		return
	}
	d := p.decide(host, port)
	if !d.Allowed {
		p.refuseConnect(w, notAllowed(d))
		return
	}
	var up *link
	if !d.Terminated() { // then each request has its own answer
		// A program that has already ended its direction still waits for an answer.
		if up, err = p.dial(context.WithoutCancel(r.Context()), kind, host, port); err != nil {
			p.refuseConnect(w, asRefusal(d, err))
			return
		}
	}
	c := hijack(w, established)
	if c != nil {
		p.serveConn(c, d, kind, up)
	} else if up != nil {
		_ = up.Close()
	}
}

// serveConn serves a program's connection to one host, whichever way it came: any bytes if the rule allows them, else
// TLS or HTTP. up is the connection to the server, nil if there is none yet.
func (p *Proxy) serveConn(c net.Conn, d policy.Decision, kind string, up *link) {
	fail := func(r *refusal) {
		if r != nil {
			p.note(kind, r)
		}
		if up != nil {
			reason := "the program sent nothing"
			if r != nil {
				reason = r.reason
			}
			up.cut(reason)
		}
		reset(c)
	}
	connected := func() bool {
		if up == nil {
			var err error
			if up, err = p.dial(p.ctx, kind, d.Host, d.Port); err != nil { // there are no means for an answer
				fail(asRefusal(d, err))
				return false
			}
		}
		if !up.d.Same(d) {
			fail(refuse(d, rulesChanged+"; try again"))
			return false
		}
		return true
	}
	if d.Raw {
		if connected() {
			join(c, up)
		}
		return
	}
	begin, is, err := peek(c, p.opts.Bounds.HeaderFor)
	switch {
	case errors.Is(err, errNothing):
		fail(nil)
	case err != nil:
		fail(refuse(d, "%v", err))
	case is == isHTTP:
		s := site{host: d.Host, port: d.Port, kind: kind}
		if kind != transparent {
			s.kind = "http"
		}
		if up != nil {
			s.dialed = &spare{}
			s.dialed.up.Store(up)
		}
		begin.site = s
		p.handed.give(begin)
	case d.Terminated():
		p.terminate(begin, d, kind)
	case connected():
		p.tunnel(begin, up, kind)
	}
}

// tunnel joins a program and a server that speak TLS, after checking the program's hello.
func (p *Proxy) tunnel(c net.Conn, up *link, kind string) {
	within := p.opts.Bounds.HeaderFor
	refused := func(err error) {
		p.note(kind, refuse(up.d, "%v", err))
		up.cut(err.Error())
		reset(c)
	}
	h, err := readHello(c, within)
	if err == nil && h.name != up.d.Host {
		err = fmt.Errorf("the TLS hello is for %s", clean(h.name, 253))
	}
	if err != nil {
		refused(err)
		return
	}
	if _, err := up.Write(h.raw); err != nil {
		reset(up)
		reset(c)
		return
	}
	rest := &handed{Conn: c, head: h.rest}
	join(&inspected{Conn: rest, host: up.d.Host, within: within, refuse: refused}, up)
}

// terminate passes a connection to the server behind our own TLS.
func (p *Proxy) terminate(c net.Conn, d policy.Decision, kind string) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return p.certificate(h, d, kind)
		},
	}
	inner := &handed{Conn: c, site: site{host: d.Host, port: d.Port, kind: "https", tls: true}}
	p.handed.give(tls.Server(inner, config))
}

func (p *Proxy) certificate(h *tls.ClientHelloInfo, d policy.Decision, kind string) (*tls.Certificate, error) {
	name, err := policy.RequestName(h.ServerName)
	switch {
	case h.ServerName == "":
		err = errNoSNI
	case err == nil && name != d.Host:
		err = fmt.Errorf("the TLS hello is for %s", clean(h.ServerName, 253))
	}
	if err != nil {
		p.note(kind, refuse(d, "%v", err))
		return nil, err
	}
	a := authorityOf(p.state.Load().authorities, d.Host)
	if a == nil {
		return nil, errReset // the rules have changed
	}
	return a.leaf(d.Host)
}

func (p *Proxy) refuseConnect(w http.ResponseWriter, r *refusal) {
	p.note("connect", r)
	p.answerConnect(w, r)
}

func (p *Proxy) answerConnect(w http.ResponseWriter, r *refusal) {
	c := hijack(w, p.rawAnswer(r))
	if c == nil {
		return
	}
	finish(c)
}

// finish ends a connection such that its last bytes arrive: it reads further input for a while, because otherwise a
// reset would overtake them.
func finish(c net.Conn) {
	defer c.Close()
	if closeWrite(c) != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(patience.For(time.Second)))
	buf := make([]byte, 4<<10)
	for range 64 {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// hijack takes over a connection from the server and answers on it. Bytes that the
// program has already sent can still be read. It returns nil if there is no connection.
func hijack(w http.ResponseWriter, answer string) net.Conn {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Time{})
	head, _ := rw.Reader.Peek(rw.Reader.Buffered())
	if _, err := c.Write([]byte(answer)); err != nil {
		_ = c.Close()
		return nil
	}
	return &handed{Conn: c, head: append([]byte(nil), head...)}
}
