package mcpserver

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// complete gives the paths that a half-written one may become.
func (r *resources) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	out := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	p := req.Params
	if p.Ref == nil || p.Ref.URI != fileTemplate || p.Argument.Name != "path" {
		return out, nil
	}
	name := ""
	if p.Context != nil {
		name = p.Context.Arguments["session"]
	}
	session, done, err := r.enter(ctx, req.Session, req.Extra, name)
	if err != nil {
		return out, nil
	}
	defer done()
	values := completions(ctx, under(session), p.Argument.Value)
	out.Completion.Total = len(values)
	out.Completion.Values = values[:min(len(values), maxCompletions)]
	out.Completion.HasMore = len(values) > maxCompletions
	return out, nil
}

// maxCompletions is what the protocol allows.
const maxCompletions = 100

func completions(ctx context.Context, s Session, begun string) []string {
	dir := begun[:strings.LastIndex(begun, "/")+1]
	var list struct {
		Entries []struct {
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"entries"`
	}
	values := []string{}
	if err := ask(ctx, s, "ls", map[string]any{"path": "/" + dir}, &list); err != nil {
		return values
	}
	for _, e := range list.Entries {
		value := dir + e.Name
		if e.Kind == "directory" {
			value += "/"
		}
		if strings.HasPrefix(value, begun) {
			values = append(values, value)
		}
	}
	return values
}
