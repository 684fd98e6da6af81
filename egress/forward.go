package egress

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/wisbox/wisbox/egress/policy"
)

// serveBack answers requests on connections that were made for one site.
func (p *Proxy) serveBack(w http.ResponseWriter, r *http.Request) {
	s, ok := r.Context().Value(siteKey{}).(site)
	if !ok {
		http.Error(w, "no site", http.StatusInternalServerError)
		return
	}
	d := policy.Decision{Host: s.host, Port: s.port}
	switch host, port, ok := hostOf(r, s); {
	case r.Method == http.MethodConnect || r.URL.User != nil || r.URL.Opaque != "" || r.URL.Scheme != "" && !slices.Contains(s.schemes(), r.URL.Scheme):
		bad := refuse(d, "only plain requests are served here; send GET /path")
		bad.status = http.StatusBadRequest
		p.refuseRequest(w, s.kind, bad)
	case !ok || host != s.host || port != s.port:
		other := refuse(d, "the request is for %s", clean(r.Host, 253))
		other.status = http.StatusMisdirectedRequest
		p.refuseRequest(w, s.kind, other)
	default:
		p.forward(w, r, s)
	}
}

// schemes are those of a URL in a request for the site; most requests have none.
func (s site) schemes() []string {
	if s.tls {
		return []string{"https", "wss"}
	}
	return []string{"http", "ws"}
}

// hostOf returns the host and port that a request names. Without a port it returns its connection's.
func hostOf(r *http.Request, s site) (host string, port uint16, ok bool) {
	host, port = r.Host, s.port
	if host == "" && !r.ProtoAtLeast(1, 1) { // HTTP/1.0 may name none
		return s.host, port, true
	}
	if strings.Contains(host, ":") {
		var err error
		if host, port, err = splitTarget(r.Host); err != nil {
			return "", 0, false
		}
	}
	name, err := policy.RequestName(host)
	return name, port, err == nil
}

// forward forwards a request if the policy permits it. It writes a new request from the parsed form.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, s site) {
	began := time.Now()
	d := p.decide(s.host, s.port)
	if !d.Allowed {
		p.refuseRequest(w, s.kind, notAllowed(d))
		return
	}
	if refused := checkRequest(d, r); refused != nil {
		p.refuseRequest(w, s.kind, refused)
		return
	}
	line := lineOf(d, s.kind)
	line.Method = r.Method
	if s.tls {
		line.Path = r.URL.EscapedPath()
	}
	ctx := context.WithValue(r.Context(), kindKey{}, s.kind)
	ctx = context.WithValue(ctx, decisionKey{}, d)
	defer func() {
		line.MS = time.Since(began).Milliseconds()
		p.request(line)
		if cut := recover(); cut != nil {
			p.abort(r)
			panic(cut)
		}
	}()
	p.reverse(d, s, &line).ServeHTTP(w, r.WithContext(ctx))
}

// abort resets the connection of a request whose answer was cut: its end must not look like the answer's. HTTP/2 has
// its own reset.
func (p *Proxy) abort(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok && r.ProtoMajor == 1 {
		reset(c)
	}
}

// checkRequest returns a refusal if a request isn't permitted, or nil.
func checkRequest(d policy.Decision, r *http.Request) *refusal {
	if err := d.Permits(r.Method, r.URL); err != nil {
		return refuse(d, "%s %s: %v", clean(r.Method, 20), clean(r.URL.EscapedPath(), 100), err)
	}
	if r.Method == http.MethodTrace {
		return refuse(d, "TRACE would show the headers that the proxy adds; it isn't allowed")
	}
	if upgrades(r.Header) && len(d.Access) > 0 {
		return refuse(d, "the rule restricts requests, which a WebSocket would bypass")
	}
	return nil
}

// upgrades reports whether a request asks for a WebSocket. It removes offers of other protocols, such as HTTP/2 without
// TLS: a server may ignore an offer, so the client expects an answer without it.
func upgrades(h http.Header) bool {
	webSocket := httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") && httpguts.HeaderValuesContainsToken(h["Upgrade"], "websocket")
	if webSocket {
		h.Set("Upgrade", "websocket")
	} else {
		h.Del("Upgrade")
	}
	h.Del("Http2-Settings")
	return webSocket
}

// reverse returns the proxy for one request. It records the outcome in line.
func (p *Proxy) reverse(d policy.Decision, s site, line *Line) *httputil.ReverseProxy {
	transport := p.direct
	if !s.tls && p.viaHTTP(d) {
		transport = p.indirect
	}
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, BufferPool: pool{},
		ErrorLog: serverLog,
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL = target(pr.In.URL, d, s)
			pr.Out.Host = pr.Out.URL.Host
			dropHeaders(pr.Out.Header, d.Limited())
			if s.tls {
				p.inject(pr.Out, d.InjectionsFor(pr.In.Method, pr.In.URL.Path))
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			line.Status = resp.StatusCode
			resp.Header.Del("Alt-Svc") // programs can't reach alternative servers
			resp.Header.Del(deniedHeader)
			return takeHeads(resp)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			refused := asRefusal(d, err)
			line.Status, line.Reason = refused.status, refused.reason
			p.refuseRequest(w, s.kind, refused)
		},
	}
}

// target returns the URL of a request at its server.
func target(in *url.URL, d policy.Decision, s site) *url.URL {
	out := &url.URL{Scheme: "http", Host: d.Host, Path: in.Path, RawPath: in.RawPath, RawQuery: in.RawQuery, ForceQuery: in.ForceQuery}
	standard := uint16(80)
	if s.tls {
		out.Scheme, standard = "https", 443
	}
	if d.Port != standard {
		out.Host = fmt.Sprintf("%s:%d", d.Host, d.Port)
	}
	return out
}

// overrides are headers that make some servers use another method or path than the checked one.
var overrides = []string{"X-Http-Method", "X-Http-Method-Override", "X-Method-Override", "X-Original-Url", "X-Rewrite-Url", "X-Original-Uri"}

func dropHeaders(h http.Header, bounded bool) {
	for name := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, "proxy-") || strings.HasPrefix(lower, "x-forwarded-") || lower == "forwarded" {
			delete(h, name)
		}
	}
	if bounded {
		for _, name := range overrides {
			for given := range h {
				if strings.EqualFold(strings.ReplaceAll(given, "_", "-"), name) {
					delete(h, given)
				}
			}
		}
	}
}

// inject adds secrets. It replaces a placeholder that the program sent in place, also inside Basic's encoding;
// otherwise it sets the header.
func (p *Proxy) inject(r *http.Request, all []policy.Injection) {
	secrets, h := p.state.Load().secrets, r.Header
	for _, i := range all {
		i.DropOthers(h, r.URL)
	}
	for _, i := range all {
		value := secrets[i.Secret]
		given := h.Get(i.Header)
		for name := range h {
			if (value != "" || i.Alone) && strings.EqualFold(strings.ReplaceAll(name, "_", "-"), strings.ReplaceAll(i.Header, "_", "-")) {
				delete(h, name)
			}
		}
		if value == "" {
			continue // the rules have changed; the server will refuse the request
		}
		text := value
		if i.Scheme != "" {
			text = i.Scheme + " " + value
		}
		if sent, found := fill(given, i.Placeholder(), value); found && !i.Alone {
			text = sent
		}
		h.Set(i.Header, text)
	}
}

// fill puts a value in place of its placeholder.
func fill(sent, placeholder, value string) (string, bool) {
	if strings.Contains(sent, placeholder) {
		return strings.ReplaceAll(sent, placeholder, value), true
	}
	scheme, encoded, found := strings.Cut(sent, " ")
	if !found || !strings.EqualFold(scheme, "basic") {
		return "", false
	}
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil || !strings.Contains(string(plain), placeholder) {
		return "", false
	}
	filled := strings.ReplaceAll(string(plain), placeholder, value)
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(filled)), true
}

// pool lends buffers to ReverseProxy.
type pool struct{}

func (pool) Get() []byte  { return *buffers.Get().(*[]byte) }
func (pool) Put(b []byte) { buffers.Put(&b) }
