package mcpserver

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/internal/mcptask"
)

// paramsOf maps methods to the types of their params, and to texts for errors: the SDK's own errors name Go types.
var paramsOf = map[string]struct {
	read   func(json.RawMessage) error
	needed bool
	looks  string
}{
	"initialize":               {as[mcp.InitializeParams], true, `{"protocolVersion": string, "capabilities": object, "clientInfo": object}`},
	callMethod:                 {as[mcp.CallToolParamsRaw], true, `{"name": string, "arguments": object}`},
	"tools/list":               {as[mcp.ListToolsParams], false, `{"cursor": string}`},
	"resources/list":           {as[mcp.ListResourcesParams], false, `{"cursor": string}`},
	"resources/templates/list": {as[mcp.ListResourceTemplatesParams], false, `{"cursor": string}`},
	"resources/read":           {as[mcp.ReadResourceParams], true, `{"uri": string}`},
	"resources/subscribe":      {as[mcp.SubscribeParams], true, `{"uri": string}`},
	"resources/unsubscribe":    {as[mcp.UnsubscribeParams], true, `{"uri": string}`},
	"prompts/list":             {as[mcp.ListPromptsParams], false, `{"cursor": string}`},
	"prompts/get":              {as[mcp.GetPromptParams], true, `{"name": string, "arguments": object}`},
	"completion/complete":      {as[mcp.CompleteParams], true, `{"ref": object, "argument": object}`},
	"tasks/get":                {as[mcptask.Params], true, `{"taskId": string}`},
	"tasks/cancel":             {as[mcptask.Params], true, `{"taskId": string}`},
	"tasks/update":             {as[mcptask.UpdateParams], true, `{"taskId": string, "inputResponses": object}`},
	"logging/setLevel":         {as[mcp.SetLoggingLevelParams], true, `{"level": string}`},
}

func as[T any](raw json.RawMessage) error { return json.Unmarshal(raw, new(T)) }

// badParams describes a wrong type in a request's params, or returns "".
func badParams(r *jsonrpc.Request) string {
	p, known := paramsOf[r.Method]
	switch {
	case !known:
		return ""
	case r.Params == nil || isNull(r.Params):
		if p.needed {
			return fmt.Sprintf("the params of %s are missing; they are %s", r.Method, p.looks)
		}
		return ""
	}
	err := p.read(r.Params)
	if err == nil {
		return ""
	}
	what := "the params"
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && wrong.Field != "" {
		what = wrong.Field + " in the params"
	}
	return fmt.Sprintf("%s of %s can't be read; they are %s", what, r.Method, p.looks)
}
