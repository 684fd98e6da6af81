package mcpserver

import (
	"context"
	"encoding/json"
	"mime"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
)

// The SDK doesn't support tasks in subscriptions/listen, and sends none of their notifications. A request that names
// tasks is handled here instead; its other subscriptions are not accepted.

const listenMethod = "subscriptions/listen"

// ownListen is the method of such a request on its way through the SDK.
const ownListen = "wisbox/" + listenMethod

type listenParams struct {
	mcp.ParamsBase
	Notifications struct {
		TaskIDs []string `json:"taskIds"`
	} `json:"notifications"`
	ID any `json:"id,omitempty"` // of the request, under its own name
}

// listensForTasks reads the params of a request to listen that names tasks.
func listensForTasks(method string, params json.RawMessage) (p listenParams, ok bool) {
	if method != listenMethod || json.Unmarshal(params, &p) != nil {
		return p, false
	}
	return p, len(p.Notifications.TaskIDs) > 0
}

// rename routes a pipe's request to listen for tasks to listenOnPipe.
func rename(request *jsonrpc.Request) {
	p, ok := listensForTasks(request.Method, request.Params)
	if !ok {
		return
	}
	p.ID = request.ID.Raw()
	if params, err := json.Marshal(p); err == nil {
		request.Method, request.Params = ownListen, params
	}
}

// listenOnPipe writes the notifications directly, without the SDK.
func listenOnPipe(tasks *mcptask.Tasks) func(context.Context, *mcp.ServerSession, *listenParams) (mcp.Result, error) {
	return func(ctx context.Context, _ *mcp.ServerSession, p *listenParams) (mcp.Result, error) {
		c, _ := ctx.Value(connKey{}).(*conn)
		if c == nil || p == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "method not found"}
		}
		l, err := tasks.Listen(ctx, p.ID, p.GetMeta(), p.Notifications.TaskIDs)
		if err != nil {
			return nil, err
		}
		l.Run(ctx, func(method string, params any) error {
			leave, err := c.turns.take(ctx)
			if err != nil {
				return err
			}
			defer leave()
			if err := awaitTaken(ctx); err != nil {
				return err
			}
			return c.out.write(ctx, notification(method, params))
		})
		return l.Result(), ctx.Err()
	}
}

// listenOverHTTP answers a request to listen for tasks with a stream of events. It reports whether the request was one;
// the SDK refuses requests that have no ID, name another revision or don't accept a stream.
func (h *HTTPHandler) listenOverHTTP(w http.ResponseWriter, r *http.Request, body []byte) bool {
	request := members(body)
	p, ok := listensForTasks(textOf(request["method"]), request["params"])
	revision, _ := p.GetMeta()[mcp.MetaKeyProtocolVersion].(string)
	if !ok || revision != newRevision || r.Header.Get("Mcp-Protocol-Version") != revision || request["id"] == nil || !acceptsEvents(r) {
		return false
	}
	if r.Header.Get("Mcp-Method") != listenMethod {
		answerRefusal(w, r, &refusal{id: request["id"], code: mcp.CodeHeaderMismatch, message: "the header Mcp-Method must be the method"})
		return true
	}
	ctx := withOwnerOf(r)
	l, err := h.own.tasks.Listen(ctx, request["id"], p.GetMeta(), p.Notifications.TaskIDs)
	if err != nil {
		answerError(w, request["id"], err)
		return true
	}
	serveStream(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", eventStream)
		w.Header().Set("Cache-Control", "no-cache, no-transform")
		l.Run(ctx, func(method string, params any) error {
			leave, err := h.takeTurn(r, false)
			if err != nil {
				return err
			}
			defer leave()
			return event(w, notification(method, params))
		})
		if ctx.Err() == nil {
			_ = event(w, message(map[string]any{"id": request["id"], "result": l.Result()}))
		}
	}), &stream{to: w, ctx: ctx, header: http.Header{}, call: true}, r)
	return true
}

// acceptsEvents reports whether the client accepts a stream of events as the answer.
func acceptsEvents(r *http.Request) bool {
	for _, header := range r.Header.Values("Accept") {
		for one := range strings.SplitSeq(header, ",") {
			kind, _, _ := mime.ParseMediaType(one)
			if kind == eventStream || kind == "text/*" || kind == "*/*" {
				return true
			}
		}
	}
	return false
}

func notification(method string, params any) []byte {
	return message(map[string]any{"method": method, "params": params})
}

func message(members map[string]any) []byte {
	members["jsonrpc"] = "2.0"
	raw, err := json.Marshal(members)
	if err != nil { // a question of a tool that can't be sent
		raw, _ = json.Marshal(map[string]any{"jsonrpc": "2.0", "method": members["method"]})
	}
	return raw
}

// event writes and flushes one event of a stream.
func event(w http.ResponseWriter, raw []byte) error {
	if _, err := w.Write(append(append([]byte("event: message\ndata: "), raw...), "\n\n"...)); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func answerError(w http.ResponseWriter, id json.RawMessage, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(message(map[string]any{"id": id, "error": err}))
}
