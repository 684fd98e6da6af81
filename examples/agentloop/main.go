// Command agentloop lets a model work on a copy of a folder until it has nothing more to do, and
// prints the patch of its changes. The model can be any endpoint with OpenAI's chat completions,
// such as a provider's, vLLM's or Ollama's.
//
//	OPENAI_BASE_URL=http://localhost:11434/v1 MODEL=qwen3 agentloop FOLDER "fix the failing test"
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/hostmount"
)

// maxTurns ends a conversation that would never end.
const maxTurns = 50

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: agentloop FOLDER TASK")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Stdout); err != nil {
		stop()
		log.Fatal(err)
	}
}

func run(ctx context.Context, folder, task string, out io.Writer) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	m, err := wisbox.NewManager(ctx, &wisbox.Options{AllowedRoots: []string{folder}})
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.Open(ctx, &wisbox.SessionOptions{
		Mounts:    []hostmount.Mount{{HostPath: folder, MountPath: "."}},
		KeepGiven: true, // the base of the patch
	})
	if err != nil {
		return err
	}
	defer s.Close(context.WithoutCancel(ctx))
	if err := work(ctx, s, task, out); err != nil {
		return err
	}
	_, err = s.Patch(ctx, out, nil)
	return err
}

// message is one message of a conversation, in the form of OpenAI's chat completions.
type message struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// work is the loop: the model answers with calls and gets their results, until an answer has no
// call.
func work(ctx context.Context, s *wisbox.Session, task string, out io.Writer) error {
	guidance, err := s.Guidance()
	if err != nil {
		return err
	}
	talk := []message{{Role: "system", Content: guidance}, {Role: "user", Content: task}}
	for range maxTurns {
		answer, err := ask(ctx, talk, toolsOf(s))
		if err != nil {
			return err
		}
		talk = append(talk, answer)
		if answer.Content != "" {
			fmt.Fprintln(out, answer.Content)
		}
		if len(answer.ToolCalls) == 0 {
			return nil
		}
		for _, c := range answer.ToolCalls {
			fmt.Fprintln(out, "·", c.Function.Name, c.Function.Arguments)
			text := ""
			if res, err := s.Call(ctx, c.Function.Name, json.RawMessage(c.Function.Arguments)); err != nil {
				text = err.Error() // the model reads the advice in it
			} else {
				text = res.Text
			}
			talk = append(talk, message{Role: "tool", ToolCallID: c.ID, Content: text})
		}
	}
	return fmt.Errorf("the model was not done after %d turns", maxTurns)
}

// toolsOf describes the session's tools to the model.
func toolsOf(s *wisbox.Session) []any {
	var all []any
	for _, t := range s.Tools().Tools() {
		all = append(all, map[string]any{"type": "function", "function": map[string]any{
			"name": t.Name, "description": t.Description, "parameters": t.Input,
		}})
	}
	return all
}

func ask(ctx context.Context, talk []message, tools []any) (message, error) {
	body, err := json.Marshal(map[string]any{"model": os.Getenv("MODEL"), "messages": talk, "tools": tools})
	if err != nil {
		return message{}, err
	}
	base := strings.TrimSuffix(os.Getenv("OPENAI_BASE_URL"), "/")
	if base == "" {
		base = "https://api.openai.com/v1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return message{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return message{}, err
	}
	if res.StatusCode != http.StatusOK {
		return message{}, fmt.Errorf("the model's endpoint answers %s: %s", res.Status, raw)
	}
	var answer struct {
		Choices []struct{ Message message }
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return message{}, err
	}
	if len(answer.Choices) == 0 {
		return message{}, fmt.Errorf("the model's endpoint answers without a choice: %s", raw)
	}
	return answer.Choices[0].Message, nil
}
