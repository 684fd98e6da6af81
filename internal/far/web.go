package far

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/wisbox/wisbox/internal/clip"
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// KeyVariable is the environment variable of the API key for addresses that begin with https://.
const KeyVariable = "WISBOX_API_KEY"

const (
	// RemotePath is the path of the relay of `wisbox serve`.
	RemotePath = "/remote"

	webForm    = "https://HOST[:PORT]"
	keyHeader  = "X-Api-Key"
	maxRefusal = 4 << 10  // bytes of a response that refuses
	maxHeader  = 32 << 10 // bytes of the header of any response
)

var handshake = patience.For(20 * time.Second) // for TLS, and until the response's header

// Web reaches a `wisbox serve` with an API key, over a WebSocket whose messages are pieces of the
// stream. The mux's pings every [pingEvery] keep it open in proxies.
type Web struct {
	url *url.URL
	key string
	tls *tls.Config
}

func parseWeb(u *url.URL) (*Web, error) {
	switch {
	case u.Hostname() == "":
		return nil, tool.Errorf(tool.Invalid, "the address has no host; write %s", webForm).In("address")
	case u.User != nil:
		return nil, tool.Errorf(tool.Invalid, "the address has a user or a password; leave it out: the key is that of $%s or of --key-file", KeyVariable).In("address")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return nil, tool.Errorf(tool.Invalid, "the address has more than a host; write %s", webForm).In("address")
	case u.Scheme == "http" && !onLoopback(u.Hostname()):
		return nil, tool.Errorf(tool.Invalid, "http:// is for this machine alone (localhost, 127.0.0.1), since the key and all data would go unencrypted; write https://%s", u.Host).In("address")
	}
	return &Web{url: &url.URL{Scheme: u.Scheme, Host: u.Host}}, nil
}

func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Use sets the key, by default $WISBOX_API_KEY, and a PEM file of the authorities that sign the
// server's certificate; "" means those of the system, or of $SSL_CERT_FILE.
func (w *Web) Use(key, caFile string) error {
	w.key = strings.TrimSpace(cmp.Or(key, os.Getenv(KeyVariable)))
	switch {
	case w.key == "":
		return tool.Errorf(tool.Invalid, "%s needs an API key; set %s, or name a file with it: wisbox remote add NAME %s --key-file FILE", w.url, KeyVariable, w.url)
	case strings.ContainsFunc(w.key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return tool.Errorf(tool.Invalid, "the API key for %s has a space, a line break or a letter that no key has; check that its file has only the key", w.url)
	}
	w.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return nil
	}
	raw, err := os.ReadFile(caFile)
	if err != nil {
		return tool.Errorf(tool.Invalid, "the file of --ca-file can't be read; check that it exists").In("ca_file").Because(err)
	}
	w.tls.RootCAs = x509.NewCertPool()
	if !w.tls.RootCAs.AppendCertsFromPEM(raw) {
		return tool.Errorf(tool.Invalid, "the file of --ca-file has no certificate in PEM form").In("ca_file")
	}
	return nil
}

// String implements [Way].
func (w *Web) String() string { return w.url.Host }

// Place identifies the server.
func (w *Web) Place() string { return w.url.String() }

// Connect implements [Way].
func (w *Web) Connect(ctx context.Context) (io.ReadWriteCloser, error) {
	if w.key == "" {
		if err := w.Use("", ""); err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: handshake}).DialContext,
		TLSClientConfig: w.tls, TLSHandshakeTimeout: handshake, ResponseHeaderTimeout: handshake, MaxResponseHeaderBytes: maxHeader,
	}
	if w.url.Scheme == "http" {
		transport.Proxy, transport.DialContext = nil, dialLoopback
	}
	defer transport.CloseIdleConnections()
	conn, res, err := websocket.Dial(ctx, w.url.JoinPath(RemotePath).String(), &websocket.DialOptions{ //nolint:bodyclose // the library says that it needs no Close, with and without an error
		HTTPClient: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		HTTPHeader: http.Header{keyHeader: {w.key}},
	})
	if err != nil {
		return nil, w.refused(ctx, res, err)
	}
	return streamOf(conn), nil
}

// dialLoopback dials only addresses of this machine, so that no other machine gets the key.
func dialLoopback(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: handshake}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if to, ok := c.RemoteAddr().(*net.TCPAddr); !ok || !to.IP.IsLoopback() {
		return nil, errors.Join(errors.New("the name stands for another machine"), c.Close())
	}
	return c, nil
}

// refused returns an error that describes what to do about a failed connection.
func (w *Web) refused(ctx context.Context, res *http.Response, err error) error {
	if ctx.Err() != nil {
		return err
	}
	if res != nil {
		return w.answered(res, err)
	}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	why := "check whether it runs, and whether its address is right"
	switch {
	case errors.As(err, &unknown):
		why = "no authority that this machine trusts has signed its certificate; name the authority's file: wisbox remote add NAME " + w.url.String() + " --ca-file FILE"
	case errors.As(err, &name):
		why = "its certificate is for another name; use the name in the certificate"
	case errors.As(err, &record):
		why = "it speaks no TLS on this port; check whether the port is right"
	}
	return tool.Errorf(tool.Unavailable, "%s can't be reached: %s", w.url, why).Because(err)
}

func (w *Web) answered(res *http.Response, err error) error {
	said := struct{ Message string }{}
	if res.Body != nil {
		raw, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
		_ = json.Unmarshal(raw, &said)
	}
	switch res.StatusCode {
	case http.StatusUnauthorized:
		return tool.Errorf(tool.Permission, "%s refuses the API key: it is wrong, revoked or expired; create another one there (wisbox serve key create), and set %s or the remote's --key-file", w.url, KeyVariable).Because(err)
	case http.StatusNotFound:
		return tool.Errorf(tool.Unsupported, "%s offers no sessions to other machines; start it as wisbox serve --allow-remote, in this version", w.url).Because(err)
	case http.StatusForbidden:
		return tool.Errorf(tool.Permission, "%s answers for other names only; use the name of its --domain, or its IP address", w.url).Because(err)
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return tool.Errorf(tool.Unavailable, "%s has no room now: %s; try again later", w.url, cmp.Or(clip.Text(said.Message), res.Status)).Because(err)
	}
	return tool.Errorf(tool.Unavailable, "%s answers with status %d and not as wisbox serve does; check whether the address is right, and whether a proxy in front passes WebSockets on", w.url, res.StatusCode).Because(err)
}

// Explain implements [Way].
func (w *Web) Explain(_ io.ReadWriteCloser, err error) error {
	return tool.Errorf(tool.Unavailable, "%s broke the connection off before it began; try again, and check whether its key was revoked", w.url).Because(err)
}

// AcceptWeb takes over the connection of a request for [RemotePath]. After an error, it has already
// answered the request.
func AcceptWeb(w http.ResponseWriter, r *http.Request) (io.ReadWriteCloser, error) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return nil, err
	}
	return streamOf(conn), nil
}

// webStream is the stream over a WebSocket. Its Close doesn't wait for the other side.
type webStream struct {
	net.Conn
	ws *websocket.Conn
}

func streamOf(conn *websocket.Conn) webStream {
	return webStream{websocket.NetConn(context.Background(), conn, websocket.MessageBinary), conn}
}

// Close implements io.Closer.
func (s webStream) Close() error { return s.ws.CloseNow() }

// isWeb reports whether an address is that of a `wisbox serve`.
func isWeb(address string) bool {
	return strings.HasPrefix(address, "https:") || strings.HasPrefix(address, "http:")
}

// Advice returns what to try if nobody answers.
func (*Web) Advice() string { return "check whether a proxy in front holds the data back" }
