package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Guided is implemented by a session that tells a model how to work in it: what it
// has and was opened with. Without it the server's instructions do.
type Guided interface{ Guidance() (string, error) }

// addGuide offers the guidance of a session as a prompt, before it is open the
// instructions, for clients that leave those out.
func (s *Server) addGuide(sdk *mcp.Server, find finder) {
	if s.opts.Instructions == "" {
		return
	}
	sdk.AddPrompt(&mcp.Prompt{
		Name: "guide", Title: "How to work in this workspace", Description: "Tells a model how the tools go together, what the workspace has, and what its task is.",
		Arguments: []*mcp.PromptArgument{
			{Name: "task", Description: "what is to be done"},
			{Name: "session", Description: "the handle that session_open gave, over a transport without connections"},
		},
	}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		text := s.guidance(ctx, req, find)
		if task := req.Params.Arguments["task"]; task != "" {
			text += "\n\nThe task:\n" + task
		}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
	})
}

func (s *Server) guidance(ctx context.Context, req *mcp.GetPromptRequest, find finder) string {
	session, done, err := find(req.Session, ownerFrom(ctx), req.Params.Arguments["session"])
	if err != nil {
		return s.opts.Instructions
	}
	defer done()
	guided, ok := session.(Guided)
	if !ok {
		return s.opts.Instructions
	}
	text, err := guided.Guidance()
	if err != nil {
		s.logFailure("prompts/get", err)
		return s.opts.Instructions
	}
	return text
}
