package llm

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// The APIs of an endpoint.
const (
	OpenAI    = "openai"    // POST BaseURL/chat/completions
	Anthropic = "anthropic" // POST BaseURL/messages
)

// wire is one API's form of requests and responses.
type wire struct {
	path    string
	request func(*EndpointOptions, []Message) any
	sign    func(h http.Header, key string)
	content func([]byte) (string, error)
}

var wires = map[string]wire{
	OpenAI: {
		path: "/chat/completions", request: completionOf, content: completionContent,
		sign: func(h http.Header, key string) {
			if key != "" {
				h.Set("Authorization", "Bearer "+key)
			}
		},
	},
	Anthropic: {
		path: "/messages", request: messagesOf, content: messagesContent,
		sign: func(h http.Header, key string) {
			h.Set("Anthropic-Version", "2023-06-01")
			if key != "" {
				h.Set("X-Api-Key", key)
			}
		},
	},
}

type completionRequest struct {
	Model       string    `json:"model"`
	Messages    []Message `json:"messages"`
	Temperature *float64  `json:"temperature,omitempty"`
}

func completionOf(o *EndpointOptions, messages []Message) any {
	return completionRequest{o.Model, messages, o.Temperature}
}

var errForm = errors.New("the answer doesn't have the form of the API; check the base URL and the API")

func completionContent(raw []byte) (string, error) {
	var answer struct {
		Choices []struct {
			Message Message `json:"message"`
		} `json:"choices"`
	}
	if json.Unmarshal(raw, &answer) != nil || len(answer.Choices) == 0 {
		return "", errForm
	}
	return answer.Choices[0].Message.Content, nil
}

type messagesRequest struct {
	Model       string    `json:"model"`
	MaxTokens   int       `json:"max_tokens"`
	System      string    `json:"system,omitempty"`
	Messages    []Message `json:"messages"`
	Temperature *float64  `json:"temperature,omitempty"`
}

// messagesOf moves the system messages out of the conversation, where the API has none, and gives
// empty messages a text, because the API refuses them.
func messagesOf(o *EndpointOptions, messages []Message) any {
	req := messagesRequest{Model: o.Model, MaxTokens: o.MaxTokens, Temperature: o.Temperature, Messages: []Message{}}
	var system []string
	for _, m := range messages {
		if m.Role == System {
			system = append(system, m.Content)
			continue
		}
		if strings.TrimSpace(m.Content) == "" {
			m.Content = "(empty)"
		}
		req.Messages = append(req.Messages, m)
	}
	req.System = strings.Join(system, "\n\n")
	return req
}

func messagesContent(raw []byte) (string, error) {
	var answer struct {
		Type    string `json:"type"`
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	}
	if json.Unmarshal(raw, &answer) != nil || answer.Type != "message" {
		return "", errForm
	}
	var b strings.Builder
	for _, block := range answer.Content {
		if block.Type == "text" {
			b.WriteString(block.Text)
		}
	}
	return b.String(), nil
}
