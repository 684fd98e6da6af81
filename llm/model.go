// Package llm asks large language models: a [Model] continues a conversation, and
// an [Endpoint] is one behind HTTP, in OpenAI's or in Anthropic's form. It holds
// no prompt and no loop: packages that need a model take the interface.
package llm

import "context"

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one of a conversation.
type Message struct {
	Role    string `json:"role"` // System, User or Assistant
	Content string `json:"content"`
}

// Model continues a conversation. It may be used from many goroutines at once.
type Model interface {
	// Complete returns the model's next message. Errors are *tool.Error, of kind
	// unavailable where the model can't be asked, or the context's. It tries again
	// by itself where that may help, a bounded number of times.
	Complete(ctx context.Context, messages []Message) (string, error)
}
