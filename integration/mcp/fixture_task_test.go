package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
)

// taskFixtures adds the tools that the suite expects as tasks. They are tasks from the start, while wisbox's own tools
// become tasks only when a call takes long.
func taskFixtures(s *sdk.Server) {
	addFixture(s, "greet", `{"type":"object","properties":{"name":{"type":"string"}}}`, greet)
	addFixture(s, "slow_compute", `{"type":"object","properties":{"seconds":{"type":"number"},"label":{"type":"string"}}}`, compute)
	for name, do := range map[string]sdk.ToolHandler{
		"failing_job": failAlways, "test_tool_with_task": greetByTask,
		"confirm_delete": askFor("user_name"), "multi_input": askFor("user_name", "color"),
		"protocol_error_job": func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "as asked"}
		},
	} {
		if name != "test_tool_with_task" {
			do = onlyAsTask(do)
		}
		addFixture(s, name, `{"type":"object"}`, do)
	}
}

// onlyAsTask refuses calls of clients that don't support tasks.
func onlyAsTask(do sdk.ToolHandler) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		if err := mcptask.Begin(ctx); err != nil {
			return nil, err
		}
		return do(ctx, r)
	}
}

func greet(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var p struct{ Name string }
	err := json.Unmarshal(r.Params.Arguments, &p)
	return say("Hello, " + p.Name + "!"), err
}

// greetByTask asks for a name before it creates the task that greets.
func greetByTask(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	ask := askFor("user_name")
	if answered(r.Params.InputResponses, "user_name") != "" {
		ask = onlyAsTask(ask)
	}
	return ask(ctx, r)
}

// compute takes the requested time, as a task if the client supports tasks.
func compute(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
	var p struct {
		Seconds float64
		Label   string
	}
	if err := json.Unmarshal(r.Params.Arguments, &p); err != nil {
		return nil, err
	}
	_ = mcptask.Begin(ctx)
	select {
	case <-time.After(time.Duration(p.Seconds * float64(time.Second))):
		return say("computed " + p.Label), nil
	case <-ctx.Done():
		return nil, errors.New("cancelled")
	}
}
