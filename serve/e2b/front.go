package e2b

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// FrontOptions are options of [Fronts].
type FrontOptions struct {
	// Services create the handlers of ports at which clients expect an API of the sandbox, such as [EnvdPort]. The
	// handlers check tokens and signatures of requests themselves.
	Services map[uint16]func(box registry.Box, o Service) http.Handler
	// Keys reports whether a text is a key of this server. Programs never get one.
	Keys func(text string) bool
	// Proxies are the addresses of proxies in front of this server. Programs get the X-Forwarded headers of requests
	// from there, and others' not.
	Proxies []netip.Prefix
	// Log; default none.
	Log *slog.Logger
}

// Service has the options of an API within a sandbox.
type Service struct {
	Token string // authorizes requests, and signs URLs
	// Pass serves a request with a valid token or signature, which counts for the owner of the sandbox. Visit serves
	// one that needs none. If the client or the sandbox has too many, they answer with an error.
	Pass, Visit func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
	Env         map[string]string // of every program
	Done        <-chan struct{}   // closed at the sandbox's end or pause
	Log         *slog.Logger
	// Quiet returns the text of an error for Log.
	Quiet func(error) string
}

// Fronts returns the function for [registry.Options] that serves the ports of a sandbox, including our own services.
func Fronts(opts *FrontOptions) func(*registry.Sandbox, registry.Box, <-chan struct{}) registry.Front {
	o := *opts
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return func(s *registry.Sandbox, box registry.Box, done <-chan struct{}) registry.Front {
		rec := s.Record()
		quiet := o.Log.With("sandbox", s.Alias())
		f := &front{
			sandbox: s, rec: rec, isKey: o.Keys, proxies: o.Proxies, services: map[uint16]http.Handler{},
			transport: &http.Transport{
				DialContext:            func(ctx context.Context, _, addr string) (net.Conn, error) { return dial(ctx, box, addr) },
				TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // the sandbox's programs have self-signed certificates
				MaxResponseHeaderBytes: httpguard.MaxAnswerHeader,
				DisableCompression:     true, MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleTime,
			},
		}
		for port, make := range o.Services {
			f.services[port] = make(box, Service{Token: s.EnvdToken(), Pass: f.pass, Visit: f.visit, Env: rec.Env, Done: done, Log: quiet, Quiet: registry.Quiet})
		}
		f.proxy = &httputil.ReverseProxy{
			Rewrite: f.rewrite, ModifyResponse: received, Transport: f.transport, FlushInterval: -1, ErrorHandler: f.failed, ErrorLog: log.New(io.Discard, "", 0),
		}
		return f
	}
}

const (
	idleTime  = 30 * time.Second // of a connection to a program
	idleConns = 8

	minKey = 22 // characters of a key or token at least

	headerTraffic = "E2b-Traffic-Access-Token"
	headerToken   = "X-Access-Token"
	headerKey     = "X-Api-Key"

	headerFor   = "X-Forwarded-For"
	headerHost  = "X-Forwarded-Host"
	headerProto = "X-Forwarded-Proto"
)

var forwardedHeaders = []string{headerFor, headerHost, headerProto}

// credentials are the headers in which clients send keys and tokens.
var credentials = []string{headerToken, headerKey, headerTraffic, "Authorization", "Proxy-Authorization"}

// dial connects to the port of an address that rewrite has made.
func dial(ctx context.Context, box registry.Box, addr string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	to, err := portOf("", text)
	if err != nil {
		return nil, err
	}
	return box.Dial(ctx, to.port)
}

// front answers the requests for one sandbox.
type front struct {
	sandbox   *registry.Sandbox
	rec       registry.Record
	isKey     func(string) bool
	proxies   []netip.Prefix
	services  map[uint16]http.Handler
	proxy     *httputil.ReverseProxy
	transport *http.Transport
}

type portKey struct{}

func (f *front) ServePort(w http.ResponseWriter, r *http.Request, port uint16) {
	service, ours := f.services[port]
	if !ours {
		f.visit(w, r.WithContext(context.WithValue(r.Context(), portKey{}, port)), f.proxy.ServeHTTP)
		return
	}
	// A browser that opens a file of a sandbox gets nothing that it would run.
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "sandbox")
	service.ServeHTTP(w, r)
}

// received checks a program's answer.
func received(resp *http.Response) error {
	keepCookies(resp)
	return httpguard.TakeHeader(resp)
}

// keepCookies lets a program set cookies for its own host name only: the domain is also that of other keys' sandboxes.
func keepCookies(resp *http.Response) {
	for i, cookie := range resp.Header["Set-Cookie"] {
		parts := strings.Split(cookie, ";") // the cookie itself, and its attributes
		attributes := slices.DeleteFunc(parts[1:], func(part string) bool {
			name, _, _ := strings.Cut(part, "=")
			return strings.EqualFold(strings.TrimSpace(name), "Domain")
		})
		resp.Header["Set-Cookie"][i] = strings.Join(parts[:1+len(attributes)], ";")
	}
}

// pass implements [Service.Pass].
func (f *front) pass(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	client := ClientOf(f.rec.Owner)
	client.Part = f.rec.ID
	letIn(client, w, r, next)
}

// visit implements [Service.Visit].
func (f *front) visit(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	letIn(visitorsOf(f.rec.Owner, f.rec.ID), w, r, next)
}

func letIn(client httpguard.Client, w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
	if err := httpguard.LetIn(r, client); err != nil {
		writeFailure(w, failureOf(err))
		return
	}
	next(w, r)
}

func (f *front) Close() { f.transport.CloseIdleConnections() }

func portOfRequest(r *http.Request) uint16 {
	port, _ := r.Context().Value(portKey{}).(uint16)
	return port
}

// rewrite copies the client's request for a program, without the keys and tokens of this server and the sandbox.
func (f *front) rewrite(r *httputil.ProxyRequest) {
	port := portOfRequest(r.In)
	r.Out.URL.Scheme, r.Out.URL.Host = "http", fmt.Sprintf("127.0.0.1:%d", port)
	if slices.Contains(f.rec.TLSPorts, port) {
		r.Out.URL.Scheme = "https"
	}
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	if f.rec.MaskHost != "" {
		r.Out.Host = strings.ReplaceAll(f.rec.MaskHost, "${PORT}", fmt.Sprint(port))
	}
	f.forwarded(r)
	for _, name := range []string{headerSandbox, headerPort, headerTraffic} {
		r.Out.Header.Del(name)
	}
	for name, values := range r.Out.Header {
		read := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) // as many programs read it
		if read != name && slices.Contains(forwardedHeaders, read) {
			delete(r.Out.Header, name)
		}
		if !slices.Contains(credentials, read) {
			continue
		}
		if left := slices.DeleteFunc(slices.Clone(values), f.opens); len(left) > 0 {
			r.Out.Header[name] = left
		} else {
			delete(r.Out.Header, name)
		}
	}
}

// forwarded sets the headers with the address of the client, and the host and the scheme of its request. What the client itself
// says about that counts only if it is a proxy in front of this server.
func (f *front) forwarded(r *httputil.ProxyRequest) {
	from, err := netip.ParseAddrPort(r.In.RemoteAddr)
	trusted := err == nil && slices.ContainsFunc(f.proxies, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) })
	if trusted {
		r.Out.Header[headerFor] = slices.Clone(r.In.Header[headerFor]) // SetXForwarded adds the proxy's own address
	}
	r.SetXForwarded()
	if !trusted {
		return
	}
	for _, name := range []string{headerHost, headerProto} {
		if said := r.In.Header[name]; len(said) > 0 {
			r.Out.Header[name] = slices.Clone(said)
		}
	}
}

// opens reports whether a header's value contains a key of this server or a token of the sandbox, in whatever form: a
// server need not have understood it.
func (f *front) opens(value string) bool {
	texts := words(value)
	for _, text := range strings.FieldsFunc(value, func(r rune) bool { return !strings.ContainsRune(inBase64, r) }) { // Basic
		raw, _ := base64.RawStdEncoding.DecodeString(strings.NewReplacer("-", "+", "_", "/").Replace(text)) // up to what isn't base64
		texts = append(texts, words(string(raw))...)
	}
	return slices.ContainsFunc(texts, func(text string) bool {
		return f.isKey != nil && f.isKey(text) || httpguard.Same(text, f.sandbox.EnvdToken()) || httpguard.Same(text, f.sandbox.TrafficToken())
	})
}

// inBase64 has the digits of both forms of base64, without its padding.
const inBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"

// words returns the parts of a text that are long enough for a key.
func words(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.DeleteFunc(all, func(word string) bool { return len(word) < minKey })
}

// failed answers a request when the program doesn't.
func (f *front) failed(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, httpguard.ErrBusy) {
		writeFailure(w, failureOf(err))
		return
	}
	text := "The program on this port closed the connection, doesn't speak HTTP, or answers with more than 32 KiB of headers"
	if tool.KindOf(err) == tool.NotFound {
		text = "The sandbox is running but port is not open"
	}
	writeJSON(w, http.StatusBadGateway, struct {
		SandboxID string `json:"sandboxId"`
		Message   string `json:"message"`
		Port      uint16 `json:"port"`
		Code      int    `json:"code"`
	}{f.sandbox.ID(), text, portOfRequest(r), http.StatusBadGateway})
}
