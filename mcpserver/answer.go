package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
	"github.com/wisbox/wisbox/tool"
)

// ErrorMeta is the key under which an answer carries its error object.
const ErrorMeta = "wisbox/error"

type call = func(context.Context) (*tool.Result, error)

// answer converts the result of a call to the protocol's form. A tool's error is an answer, never an error of the
// protocol.
func (s *Server) answer(ctx context.Context, req *mcp.CallToolRequest, do call) (*mcp.CallToolResult, error) {
	ctx, stop := s.untilRequestEnds(ctx, req)
	defer stop()
	if isNull(req.Params.Arguments) {
		req.Params.Arguments = nil
	}
	began := time.Now()
	res, err := s.inTurn(tool.WithClient(tool.WithCaller(ctx, client(req)), connection(ctx, req)), req, do)
	took := time.Since(began)
	mcptask.Send(ctx, func() { s.tellOf(ctx, req, res, err, took) }) // a task's client gets only the task
	if err != nil {
		s.logFailure(req.Params.Name, err)
		return errorResult(err), nil
	}
	return toolResult(res), nil
}

// client returns the other end's own name, which is unverified.
func client(req *mcp.CallToolRequest) string {
	said := req.Session.InitializeParams()
	if said == nil || said.ClientInfo == nil {
		return ""
	}
	return strings.TrimSpace(said.ClientInfo.Name + " " + said.ClientInfo.Version)
}

// connection returns an identity of the other end that no other connection has. Stateless HTTP has no connections:
// there it is the owner and the name.
func connection(ctx context.Context, req *mcp.CallToolRequest) string {
	if id := req.Session.ID(); id != "" {
		return "mcp " + id
	}
	if pipe, ok := clientOf(ctx).(*conn); ok {
		return fmt.Sprintf("mcp %d %p", os.Getpid(), pipe)
	}
	return fmt.Sprintf("mcp %s %s", ownerFrom(ctx), client(req))
}

// PollMeta is a key in a call's _meta. With the value true, the client prefers polling a process to waiting for long:
// many clients give up after a minute.
const PollMeta = "wisbox/poll"

// polling lets a call answer with a process, if the client has requested that and has the tool to read from one.
func (s *Server) polling(ctx context.Context, req *mcp.CallToolRequest) context.Context {
	if asked, _ := req.Params.GetMeta()[PollMeta].(bool); !asked {
		return ctx
	}
	if _, can := s.set.Lookup("process_read"); !can {
		return ctx
	}
	return tool.WithPolling(ctx, s.opts.PollAfter)
}

// inTurn runs a call when it has a slot.
func (s *Server) inTurn(ctx context.Context, req *mcp.CallToolRequest, do call) (*tool.Result, error) {
	leave, err := s.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, done := s.reportProgress(ctx, req)
	defer done()
	return s.guarded(s.polling(ctx, req), req.Params.Name, do)
}

// turn waits until another call may run.
func (s *Server) turn(ctx context.Context) (leave func(), err error) {
	if err := awaitTaken(ctx); err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// guarded runs a call and recovers from a panic of its tool.
func (s *Server) guarded(ctx context.Context, name string, do call) (res *tool.Result, err error) {
	defer func() {
		if defect := recover(); defect != nil {
			s.opts.Logger.Error("a tool panicked", "tool", name, "panic", defect, "stack", string(debug.Stack()))
			res, err = nil, fmt.Errorf("panic: %v", defect)
		}
	}()
	return do(ctx)
}

// survive recovers from a panic in the handler of a request. guarded does so for the calls of tools.
func (s *Server) survive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if defect := recover(); defect != nil {
				s.opts.Logger.Error("a request panicked", "method", method, "panic", defect, "stack", string(debug.Stack()))
				hidden := tool.AsError(fmt.Errorf("panic: %v", defect))
				res, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: hidden.Error()}
			}
		}()
		return next(ctx, method, req)
	}
}

func (s *Server) logFailure(name string, err error) {
	e := tool.AsError(err)
	if e.Kind == tool.Internal || e.Kind == tool.Unavailable {
		s.opts.Logger.Warn("a call failed", "tool", name, "kind", e.Kind, "message", e.Message, "cause", e.Unwrap())
	}
}

func errorResult(err error) *mcp.CallToolResult {
	e := tool.AsError(err)
	return &mcp.CallToolResult{
		Meta:    mcp.Meta{ErrorMeta: e},
		Content: []mcp.Content{&mcp.TextContent{Text: e.Error()}},
		IsError: true,
	}
}

func toolResult(res *tool.Result) *mcp.CallToolResult {
	structured, err := json.Marshal(res.Value)
	if err != nil {
		return errorResult(fmt.Errorf("marshal a result: %w", err))
	}
	text := res.Text
	if text == "" {
		text = string(structured)
	}
	out := &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: text}}, StructuredContent: json.RawMessage(structured), IsError: res.Failed,
	}
	for i, b := range res.Blobs {
		out.Content = append(out.Content, blobContent(i, b))
	}
	return out
}

func blobContent(i int, b tool.Blob) mcp.Content {
	switch kind, _, _ := strings.Cut(b.MIME, "/"); kind {
	case "image":
		return &mcp.ImageContent{Data: b.Data, MIMEType: b.MIME}
	case "audio":
		return &mcp.AudioContent{Data: b.Data, MIMEType: b.MIME}
	}
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
		URI: fmt.Sprintf("wisbox://result/blob/%d", i), MIMEType: b.MIME, Blob: b.Data,
	}}
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }
