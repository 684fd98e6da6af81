package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// complete returns the completions of a path or a snapshot.
func (r *resources) complete(ctx context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	out := &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}
	p := req.Params
	if p.Ref == nil {
		return out, nil
	}
	find := completers[p.Ref.URI+" "+p.Argument.Name]
	if find == nil {
		return out, nil
	}
	name := ""
	if p.Context != nil {
		name = p.Context.Arguments["session"]
	}
	session, done, err := r.enter(ctx, req.Session, name)
	if err != nil {
		return out, nil
	}
	defer done()
	values := find(ctx, under(session), p.Argument.Value)
	out.Completion.Total = len(values)
	out.Completion.Values = values[:min(len(values), maxCompletions)]
	out.Completion.HasMore = len(values) > maxCompletions
	return out, nil
}

// completers return the values of a template's variable that begin with begun.
var completers = map[string]func(ctx context.Context, s Session, begun string) []string{
	fileTemplate + " path": paths, diffTemplate + " from": snapshotsLike, diffToTemplate + " from": snapshotsLike, diffToTemplate + " to": snapshotsLike,
}

// maxCompletions is the protocol's maximum.
const maxCompletions = 100

func paths(ctx context.Context, s Session, begun string) []string {
	dir := begun[:strings.LastIndex(begun, "/")+1]
	list, err := entries(ctx, s, dir)
	values := []string{}
	if err != nil {
		return values
	}
	for _, e := range list {
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

func snapshotsLike(ctx context.Context, s Session, begun string) []string {
	return slices.DeleteFunc(append([]string{}, snapshots(ctx, s)...), func(id string) bool { return !strings.HasPrefix(id, begun) })
}
