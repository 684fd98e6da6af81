package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/mcptask"
)

// guard is what a request passes before any of it is believed: the guard's checks, then
// those of this protocol.
func (h *HTTPHandler) guard(next http.Handler) http.Handler {
	inner := h.withOwner(h.withBody(h.withRequestID(next)))
	if h.opts.Owner != nil {
		return inner
	}
	return h.checks.Handler(inner)
}

// withOwner tells the SDK whose request it is: a session belongs to the token that
// opened it.
func (h *HTTPHandler) withOwner(next http.Handler) http.Handler {
	known := auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case h.opts.Owner != nil: // the SDK learns it from a token alone, and none is needed behind here
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer -")
		case h.checks.Open(r):
			next.ServeHTTP(w, r)
			return
		}
		known.ServeHTTP(w, r)
	})
}

func (h *HTTPHandler) verify(_ context.Context, token string, r *http.Request) (*auth.TokenInfo, error) {
	var owner string
	if h.opts.Owner != nil {
		owner = h.opts.Owner(r)
	} else {
		owner = h.checks.Owner(token)
	}
	if owner == "" {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: owner}, nil
}

// withBody reads a body whole, in bounded size, so that what comes
// behind has only memory to read.
func (h *HTTPHandler) withBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")) {
			httpguard.Refuse(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			httpguard.Refuse(w, http.StatusRequestEntityTooLarge, "a request has at most 4 MiB")
			return
		} else if err != nil {
			httpguard.Refuse(w, http.StatusBadRequest, "the body can't be read")
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a call may take its time
		refused := refusalOf(body)
		if refused == nil && r.Header.Get("Mcp-Protocol-Version") >= newRevision {
			refused = misrouted(body, r.Header.Get("Mcp-Name"))
		}
		if r.Method == http.MethodPost && refused != nil {
			answerRefusal(w, r, refused)
			return
		}
		if r.Method == http.MethodPost && h.listenOverHTTP(w, r, body) {
			return
		}
		if textOf(members(body)["method"]) == fetchMethod {
			leave, err := h.turnsOf(r).take(r.Context())
			if err != nil {
				return // the client has gone
			}
			defer leave()
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(fetchedWithin))
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

// misrouted refuses a request about a task whose header names another one, or none:
// what stands between may have gone by the header. For the other methods the SDK does it.
func misrouted(body []byte, name string) *refusal {
	request := members(body)
	method := textOf(request["method"])
	id := textOf(members(request["params"])["taskId"])
	if !slices.Contains(mcptask.Methods, method) || id == name {
		return nil
	}
	return &refusal{id: request["id"], code: mcp.CodeHeaderMismatch, message: "the header Mcp-Name must be the taskId of the params"}
}

// members reads an object by the exact names of its members, as the SDK does; those of
// a struct would be found in any case of letters.
func members(raw json.RawMessage) (all map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &all)
	return all
}

// textOf is a member that is a string, "" where it is none.
func textOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
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
// it, if one did and the call hasn't become a task.
func (s *Server) untilRequestEnds(ctx context.Context, req *mcp.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if mcptask.IsTask(ctx) {
		return ctx, cancel
	}
	if req.Extra == nil || req.Extra.Header == nil {
		return ctx, cancel
	}
	request, ok := s.requests.Load(req.Extra.Header.Get(requestHeader))
	if !ok {
		if req.Extra.Header.Get(requestHeader) != "" && !mcptask.IsTask(ctx) {
			cancel() // it has ended already
		}
		return ctx, cancel
	}
	stop := context.AfterFunc(request.(context.Context), func() {
		if !mcptask.IsTask(ctx) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// valued is a context with the values of another one, too.
type valued struct {
	context.Context
	more context.Context
}

func (v valued) Value(key any) any {
	if value := v.Context.Value(key); value != nil {
		return value
	}
	return v.more.Value(key)
}
