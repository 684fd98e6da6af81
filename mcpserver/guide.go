package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// addGuide offers the guidance of a session as a prompt, for clients that ignore the instructions. Before the session
// is open, the prompt has the instructions.
func (s *Server) addGuide(sdk *mcp.Server, find finder) {
	if s.opts.Instructions == "" {
		return
	}
	sdk.AddPrompt(&mcp.Prompt{
		Name: "guide", Title: "How to work in this workspace", Description: "Explains to a model how the tools go together, what the workspace has, and what its task is.",
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
		return s.unopened()
	}
	defer done()
	guided, ok := As[Guided](session)
	if !ok {
		return s.unopened()
	}
	text, err := guided.Guidance()
	if err != nil {
		s.logFailure("prompts/get", err)
		return s.unopened()
	}
	return text
}

// unopened returns the guidance without a session: the instructions and the tools.
func (s *Server) unopened() string {
	return s.opts.Instructions + "\n\nThe tools and their arguments (? marks those that may be left out):\n\n" + tool.Outline(s.set)
}
