// Package llm calls large language models. A [Model] continues a conversation, and an [Endpoint] is a
// model behind HTTP, with OpenAI's or Anthropic's API. The package has no prompts and no loops:
// packages that need a model use the interface.
package llm

import "context"

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"` // System, User or Assistant
	Content string `json:"content"`
}

// Model continues a conversation. It may be used from many goroutines at once.
type Model interface {
	// Complete returns the model's next message. Its error is a *tool.Error, of kind unavailable if
	// the model can't be reached, or the context's. It retries a bounded number of times if that
	// may help.
	Complete(ctx context.Context, messages []Message) (string, error)
}
