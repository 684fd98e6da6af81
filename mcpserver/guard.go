package mcpserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/httpguard"
	"github.com/wisbox/wisbox/internal/mcptask"
)

// guard returns a handler that checks a request before it is trusted: first the guard's checks, then those of this
// protocol.
func (h *HTTPHandler) guard(next http.Handler) http.Handler {
	inner := h.withOwner(h.withBody(h.withRequestID(next)))
	if h.opts.Owner != nil {
		return inner
	}
	return h.checks.Handler(inner)
}

// withOwner reports the owner of a request to the SDK: a session belongs to the token
// that opened it.
func (h *HTTPHandler) withOwner(next http.Handler) http.Handler {
	known := auth.RequireBearerToken(h.verify, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case h.opts.Owner != nil: // the SDK takes the owner from a token, which isn't needed any more here
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

// withBody reads a whole body, up to a maximum size, so that the next handlers read only from memory.
func (h *HTTPHandler) withBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")) {
			httpguard.Refuse(w, http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
			return
		}
		body, _, err := httpguard.ReadBody(r, maxBody)
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			httpguard.Refuse(w, http.StatusRequestEntityTooLarge, "a request has at most 4 MiB")
			return
		} else if errors.Is(err, httpguard.ErrBusy) {
			httpguard.RefuseBusy(w, err)
			return
		} else if err != nil {
			httpguard.Refuse(w, http.StatusBadRequest, "the body can't be read")
			return
		}
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
		list := listOf(body)
		if len(list) > maxBatch {
			httpguard.Refuse(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("a list has at most %d messages; send the others in requests of their own", maxBatch))
			return
		}
		if list != nil || textOf(members(body)["method"]) == fetchMethod {
			leave, err := h.takeTurn(r, list != nil)
			if err != nil {
				return // the client has gone
			}
			defer leave()
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		request := members(body)
		call := request["id"] != nil && textOf(request["method"]) == callMethod
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callKey{}, call)))
	})
}

type callKey struct{}

const callMethod = "tools/call"

// refusalOf returns a refusal for an invalid body, as for a line on stdin. Revision 2025-03-26 has lists of messages,
// which the SDK checks.
func refusalOf(body []byte) *refusal {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil // the SDK reports it
	}
	messages := listOf(body)
	if messages == nil {
		messages = []json.RawMessage{body}
	}
	for _, text := range messages[:min(len(messages), maxBatch)] {
		if _, refused := decode(line{text: text}); refused != nil {
			return refused
		}
	}
	return nil
}

// listOf returns the messages of a body that is a list of them; otherwise nil.
func listOf(body []byte) (messages []json.RawMessage) {
	if text := bytes.TrimSpace(body); len(text) > 0 && text[0] == '[' {
		_ = json.Unmarshal(text, &messages)
	}
	return messages
}

// misrouted refuses a request about a task whose header names another task, or none: a proxy may have routed it by the
// header. For other methods the SDK does that.
func misrouted(body []byte, name string) *refusal {
	request := members(body)
	method := textOf(request["method"])
	id := textOf(members(request["params"])["taskId"])
	if !slices.Contains(mcptask.Methods, method) || id == name {
		return nil
	}
	return &refusal{id: request["id"], code: mcp.CodeHeaderMismatch, message: "the header Mcp-Name must be the taskId of the params"}
}

// members decodes an object by the exact names of its members, as the SDK does; a struct's fields would match in any
// case of letters.
func members(raw json.RawMessage) (all map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &all)
	return all
}

// textOf returns a member that is a string, or "" for others.
func textOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
}

// answerRefusal answers the request by its ID, if that is known, as in the revisions with connections; otherwise it
// refuses the HTTP request.
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

// requestHeader is the header that passes the ID of an HTTP request to its call's handler. A client's
// own value is overwritten.
const requestHeader = "Wisbox-Request"

// withRequestID lets a call end with its HTTP request: if the client is gone, nobody receives the answer.
func (h *HTTPHandler) withRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := rand.Text()
		r.Header.Set(requestHeader, id)
		call, _ := r.Context().Value(callKey{}).(bool)
		answer := &stream{to: w, ctx: r.Context(), header: http.Header{}, call: call}
		h.server.requests.Store(id, answer)
		defer h.server.requests.Delete(id)
		serveStream(next, answer, r)
	})
}

// untilRequestEnds ends the context of a call with its HTTP request, if it has one and the call hasn't become a task.
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
	stop := context.AfterFunc(request.(*stream).ctx, func() {
		if !mcptask.IsTask(ctx) {
			cancel()
		}
	})
	return ctx, func() { stop(); cancel() }
}

// valued is a context that also has the values of another one.
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
