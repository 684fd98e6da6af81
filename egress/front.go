package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// site is the only target of a connection.
type site struct {
	host string
	port uint16
	kind string // for the log
	tls  bool   // the proxy terminates its TLS
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
	switch {
	case r.Method == http.MethodConnect:
		p.serveConnect(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "" && r.URL.User == nil && r.URL.Opaque == "":
		p.servePlain(w, r)
	default:
		p.refuseRequest(w, "http", &refusal{status: http.StatusBadRequest, host: r.Host, reason: "this is the proxy to the hosts that are allowed; send CONNECT HOST:PORT or GET http://HOST/"})
	}
}

func (p *Proxy) refuseRequest(w http.ResponseWriter, kind string, r *refusal) {
	p.note(kind, r)
	p.answer(w, r)
}

// servePlain forwards http:// requests.
func (p *Proxy) servePlain(w http.ResponseWriter, r *http.Request) {
	host, port := r.URL.Host, uint16(80)
	if r.URL.Port() != "" || len(host) > 0 && host[len(host)-1] == ':' {
		var err error
		if host, port, err = splitTarget(r.URL.Host); err != nil {
			p.refuseRequest(w, "http", &refusal{status: http.StatusBadRequest, host: host, reason: err.Error()})
			return
		}
	}
	p.forward(w, r, site{host: host, port: port, kind: "http"})
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// serveConnect opens a tunnel.
func (p *Proxy) serveConnect(w http.ResponseWriter, r *http.Request) {
	host, port, err := splitTarget(r.RequestURI)
	if err != nil {
		p.refuseConnect(w, &refusal{status: http.StatusBadRequest, host: host, reason: err.Error()})
		return
	}
	d := p.decide(host, port)
	if !d.Allowed {
		p.refuseConnect(w, notAllowed(d))
		return
	}
	if d.Terminated() {
		if c := hijack(w, established); c != nil {
			p.terminate(c, d, "connect")
		}
		return
	}
	// A program that has already ended its direction still waits for an answer.
	up, err := p.dial(context.WithoutCancel(r.Context()), "connect", host, port)
	if err != nil {
		p.refuseConnect(w, asRefusal(d, err))
		return
	}
	c := hijack(w, established)
	if c == nil {
		_ = up.Close()
		return
	}
	p.tunnel(c, up, "connect")
}

// tunnel joins a program and a server, after checking the program's first bytes.
func (p *Proxy) tunnel(c net.Conn, up *link, kind string) {
	if up.d.Raw {
		join(c, up)
		return
	}
	within := p.opts.Bounds.HeaderFor
	if up.d.Terminated() { // the rules have changed: its requests must be read
		up.cut(rulesChanged)
		reset(c)
		return
	}
	refused := func(err error) {
		if !errors.Is(err, errNothing) {
			p.note(kind, refuse(up.d, "%v", err))
		}
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
	p.inside.give(tls.Server(inner, config))
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
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
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
