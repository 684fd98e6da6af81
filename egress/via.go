package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/wisbox/wisbox/egress/policy"
)

// checkVia refuses a URL that isn't a proxy's.
func checkVia(u *url.URL) error {
	switch {
	case u == nil:
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("egress via %q: the scheme is unknown; use http:// or https://", u.Redacted())
	case u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("egress via %q: it is not an address of a proxy; write http://HOST:PORT", u.Redacted())
	}
	return nil
}

func viaAddress(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// clientTLS returns a configuration that verifies servers. Without a name the transport sets it.
func (p *Proxy) clientTLS(name string) *tls.Config {
	return &tls.Config{RootCAs: p.opts.Roots, ServerName: name, MinVersion: tls.VersionTLS12}
}

// dialViaItself connects to the proxy of Via. The session's owner chose it, so its address isn't checked.
func (p *Proxy) dialViaItself(ctx context.Context, d policy.Decision) (net.Conn, error) {
	c, err := p.dialViaTCP(ctx, d)
	if err != nil || p.opts.Via.Scheme != "https" {
		return c, err
	}
	t := tls.Client(c, p.clientTLS(p.opts.Via.Hostname()))
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, badGateway(d, "the proxy of --egress-via can't be verified")
	}
	return t, nil
}

func (p *Proxy) dialViaTCP(ctx context.Context, d policy.Decision) (net.Conn, error) {
	var dialer Dialer = &net.Dialer{}
	if p.opts.Dialer != nil {
		dialer = p.opts.Dialer
	}
	c, err := dialer.DialContext(ctx, "tcp", viaAddress(p.opts.Via))
	if err != nil {
		return nil, badGateway(d, "the proxy of --egress-via can't be reached: %s", connectProblem(err))
	}
	return c, nil
}

// dialVia returns a tunnel to a host through the proxy of Via.
func (p *Proxy) dialVia(ctx context.Context, d policy.Decision) (net.Conn, error) {
	c, err := p.dialViaItself(ctx, d)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	tunnel, err := p.connect(c, d)
	if !stop() && err == nil {
		err = badGateway(d, "the proxy of --egress-via doesn't answer in time")
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return tunnel, nil
}

func (p *Proxy) connect(c net.Conn, d policy.Decision) (net.Conn, error) {
	target := fmt.Sprintf("%s:%d", d.Host, d.Port)
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if user := p.opts.Via.User; user != nil {
		password, _ := user.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)) + "\r\n"
	}
	if _, err := c.Write([]byte(request + "\r\n")); err != nil {
		return nil, badGateway(d, "the proxy of --egress-via ended the connection")
	}
	limited := &bounded{Conn: c, left: p.opts.Bounds.Header}
	r := bufio.NewReader(limited)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // the answer to CONNECT has no body: the connection follows
	if err != nil {
		return nil, badGateway(d, "the proxy of --egress-via sent an invalid answer")
	}
	if resp.StatusCode != http.StatusOK {
		return nil, badGateway(d, "the proxy of --egress-via answers %d", resp.StatusCode)
	}
	head := make([]byte, r.Buffered())
	_, _ = r.Read(head)
	return &handed{Conn: c, head: head}, nil
}

// bounded limits the number of bytes read.
type bounded struct {
	net.Conn
	left int
}

func (b *bounded) Read(buf []byte) (int, error) {
	if b.left <= 0 {
		return 0, errReset
	}
	n, err := b.Conn.Read(buf[:min(len(buf), b.left)])
	b.left -= n
	return n, err
}

// viaHTTP reports whether a plain request goes through the proxy of Via without a tunnel.
func (p *Proxy) viaHTTP(d policy.Decision) bool { return p.opts.Via != nil && d.Reach == policy.Public }
