package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addGuide offers the instructions as a prompt, for clients that leave those out.
func (s *Server) addGuide(sdk *mcp.Server) {
	if s.opts.Instructions == "" {
		return
	}
	sdk.AddPrompt(&mcp.Prompt{
		Name: "guide", Title: "How to work in this workspace", Description: "Tells a model how the tools go together, and what its task is.",
		Arguments: []*mcp.PromptArgument{{Name: "task", Description: "what is to be done"}},
	}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		text := s.opts.Instructions
		if task := req.Params.Arguments["task"]; task != "" {
			text += "\n\nThe task:\n" + task
		}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}}}, nil
	})
}
