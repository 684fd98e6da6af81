package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// guard is what a request passes before any of it is believed, cheapest first.
func (h *HTTPHandler) guard(next http.Handler) http.Handler {
	next = h.withBody(h.withRequestID(next))
	next = h.withToken(next)
	next = h.withOrigin(next)
	next = h.withHost(next)
	next = h.withTurn(next)
	return h.withDeadline(next)
}

// withDeadline bounds the time in which a whole request comes. Behind a request that
// was refused without a look at its body net/http would wait for the rest for ever.
func (h *HTTPHandler) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.opts.ReadTimeout))
		next.ServeHTTP(w, r)
	})
}

// refuse answers at once, though the body may still be on its way.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Connection", "close")
	http.Error(w, why, status)
}

// withTurn refuses what is too much at once.
func (h *HTTPHandler) withTurn(next http.Handler) http.Handler {
	turns := make(chan struct{}, h.opts.MaxRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
			next.ServeHTTP(w, r)
		default:
			refuse(w, http.StatusServiceUnavailable, "too many requests at once")
		}
	})
}

// withHost refuses requests that were not meant for us: a page that made its own
// name point to this machine.
func (h *HTTPHandler) withHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !onUnixSocket(r) && !h.isOurName(r.Host) {
			refuse(w, http.StatusForbidden, "the Host header names another server")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func onUnixSocket(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local != nil && local.Network() == "unix"
}

func (h *HTTPHandler) isOurName(host string) bool {
	name := host
	if n, _, err := net.SplitHostPort(host); err == nil {
		name = n
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "localhost" || slices.ContainsFunc(h.opts.Hosts, func(ours string) bool { return strings.EqualFold(ours, name) }) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsLoopback()
}

// withOrigin refuses pages in a browser that nobody listed.
func (h *HTTPHandler) withOrigin(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	for _, origin := range h.opts.Origins {
		if err := cross.AddTrustedOrigin(origin); err != nil {
			h.server.opts.Logger.Error("an allowed origin can't be used", "origin", origin, "error", err)
		}
	}
	next = cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, origin := range r.Header.Values("Origin") {
			if !slices.Contains(h.opts.Origins, origin) {
				refuse(w, http.StatusForbidden, "requests from this origin are not allowed")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// withToken lets in who holds a token, and tells the SDK which one: a session
// belongs to the token that opened it.
func (h *HTTPHandler) withToken(next http.Handler) http.Handler {
	known := auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(h.opts.Tokens) == 0 && onUnixSocket(r) {
			next.ServeHTTP(w, r)
			return
		}
		if kind, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); !strings.EqualFold(kind, "Bearer") || h.owner(strings.TrimSpace(token)) == "" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "a bearer token is needed")
			return
		}
		known.ServeHTTP(w, r)
	})
}

func (h *HTTPHandler) verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	owner := h.owner(token)
	if owner == "" {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: owner}, nil
}

// owner names the holder of a token, "" for a wrong one. It takes the same time
// for all wrong ones.
func (h *HTTPHandler) owner(token string) string {
	given := sha256.Sum256([]byte(token))
	owner := ""
	for _, t := range h.opts.Tokens {
		want := sha256.Sum256([]byte(t))
		if subtle.ConstantTimeCompare(given[:], want[:]) == 1 {
			owner = hex.EncodeToString(want[:8])
		}
	}
	return owner
}

// withBody reads a body whole, in bounded size, so that what comes
// behind has only memory to read.
func (h *HTTPHandler) withBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")) {
			refuse(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			refuse(w, http.StatusRequestEntityTooLarge, "a request has at most 4 MiB")
			return
		} else if err != nil {
			refuse(w, http.StatusBadRequest, "the body can't be read")
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a call may take its time
		if refused := refusalOf(body); r.Method == http.MethodPost && refused != nil {
			answerRefusal(w, r, refused)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// refusalOf says what is wrong with a body as with a line on stdin. Revision
// 2025-03-26 has lists of messages, the SDK knows where.
func refusalOf(body []byte) *refusal {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil // the SDK says it
	}
	messages := []json.RawMessage{body}
	if batch := []json.RawMessage(nil); json.Unmarshal(body, &batch) == nil {
		messages = batch
	}
	for _, text := range messages {
		if _, refused := decode(line{text: text}); refused != nil {
			return refused
		}
	}
	return nil
}

// answerRefusal answers the request, where its id is known, as the revisions with
// connections have it; else it is the whole of HTTP's request that was bad.
func answerRefusal(w http.ResponseWriter, r *http.Request, refused *refusal) {
	status := http.StatusBadRequest
	if refused.id != nil && r.Header.Get("Mcp-Protocol-Version") < newRevision {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(refused.line())
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

// requestHeader tells the handler of a call which request brought it. Whatever a
// client writes there is overwritten.
const requestHeader = "Wisbox-Request"

// withRequestID lets a call end with the request that brought it: when the
// client has gone, nobody is left to take the answer.
func (h *HTTPHandler) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := rand.Text()
		r.Header.Set(requestHeader, id)
		h.server.requests.Store(id, r.Context())
		defer h.server.requests.Delete(id)
		next.ServeHTTP(w, r)
	})
}

// untilRequestEnds ends the context of a call with the HTTP request that brought
// it, if one did.
func (s *Server) untilRequestEnds(ctx context.Context, req *mcp.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if req.Extra == nil || req.Extra.Header == nil {
		return ctx, cancel
	}
	request, ok := s.requests.Load(req.Extra.Header.Get(requestHeader))
	if !ok {
		if req.Extra.Header.Get(requestHeader) != "" {
			cancel() // it has ended already
		}
		return ctx, cancel
	}
	stop := context.AfterFunc(request.(context.Context), cancel)
	return ctx, func() { stop(); cancel() }
}

func quietLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
