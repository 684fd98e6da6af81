package mcpserver

import (
	"context"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// levels lists all log levels; the SDK accepts others too.
var levels = []mcp.LoggingLevel{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func checkLevel(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.SetLoggingLevelParams); ok && p != nil && !slices.Contains(levels, p.Level) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "level must be one of debug, info, notice, warning, error, critical, alert, emergency"}
		}
		return next(ctx, method, req)
	}
}

// told is a call's record in a client's log, as brief as in wisbox's own.
type told struct {
	Tool     string `json:"tool"`
	Outcome  string `json:"outcome"` // ok, failed, or the kind of the error
	Message  string `json:"message,omitempty"`
	Duration int64  `json:"duration_ms"`
}

// tellOf sends the client a line of its log if it has requested that: info for a successful call, notice for a result
// that is marked failed, warning for a refused call, error if wisbox itself failed. It drops a line that can't be sent.
func (s *Server) tellOf(ctx context.Context, req *mcp.CallToolRequest, res *tool.Result, err error, took time.Duration) {
	line := told{Tool: req.Params.Name, Outcome: "ok", Duration: took.Milliseconds()}
	level := mcp.LoggingLevel("info")
	switch {
	case err != nil:
		e := tool.AsError(err)
		level, line.Outcome, line.Message = "warning", string(e.Kind), e.Message
		if e.Kind == tool.Internal || e.Kind == tool.Unavailable {
			level = "error"
		}
	case res.Failed:
		level, line.Outcome = "notice", "failed"
	}
	_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{Logger: "wisbox", Level: level, Data: line})
}
