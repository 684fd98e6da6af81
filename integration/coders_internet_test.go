package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// The model APIs of coding agents, for one task: the first answer calls a tool with taskScript, the answer to the
// tool's result ends the task. A client without the key is refused.

// taskScript writes hello.txt, and any trace of the key that it finds inside.
const taskScript = "echo 'hello from the agent' >hello.txt; env >env.txt; grep -rsl -D skip 's3cre[t]-' /proc/[0-9]*/environ /proc/[0-9]*/cmdline /run/secrets /workspace /tmp >found.txt; :"

func keyless(w http.ResponseWriter, r *http.Request, header, scheme string) bool {
	if r.Header.Get(header) == scheme+secretValue {
		return false
	}
	http.Error(w, `{"type":"error","error":{"type":"authentication_error","message":"this is not a key"}}`, http.StatusUnauthorized)
	return true
}

// serveEvents writes server-sent events, each named after its type.
func serveEvents(w http.ResponseWriter, all ...map[string]any) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range all {
		raw, _ := json.Marshal(e)
		if name, ok := e["type"].(string); ok {
			_, _ = fmt.Fprintf(w, "event: %s\n", name)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", raw)
	}
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

type fields = map[string]any

// anthropicAPI is the Messages API, as far as claude and opencode use it.
func anthropicAPI(w http.ResponseWriter, r *http.Request) {
	if keyless(w, r, "X-Api-Key", "") {
		return
	}
	if r.URL.Path == "/overloaded/v1/messages" {
		w.WriteHeader(529)
		return
	}
	if r.URL.Path != "/v1/messages" {
		answerJSON(w, fields{"input_tokens": 10, "data": []any{}})
		return
	}
	var req struct {
		Stream   bool
		Messages json.RawMessage
		Tools    []struct{ Name string }
	}
	_ = json.NewDecoder(r.Body).Decode(&req)
	block, delta, stop := fields{"type": "text", "text": ""}, fields{"type": "text_delta", "text": "It is written."}, "end_turn"
	for _, t := range req.Tools {
		if strings.ToLower(t.Name) != "bash" || strings.Contains(string(req.Messages), `"tool_result"`) {
			continue
		}
		input, _ := json.Marshal(map[string]string{"command": taskScript, "description": "Write hello.txt"})
		block = fields{"type": "tool_use", "id": "toolu_1", "name": t.Name, "input": fields{}}
		delta, stop = fields{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
	}
	usage := fields{"input_tokens": 10, "output_tokens": 10}
	message := fields{"id": "msg_1", "type": "message", "role": "assistant", "model": "test", "content": []any{}, "stop_reason": nil, "usage": usage}
	if !req.Stream {
		message["content"], message["stop_reason"] = []any{fields{"type": "text", "text": "a task"}}, "end_turn"
		answerJSON(w, message)
		return
	}
	serveEvents(w,
		fields{"type": "message_start", "message": message},
		fields{"type": "content_block_start", "index": 0, "content_block": block},
		fields{"type": "content_block_delta", "index": 0, "delta": delta},
		fields{"type": "content_block_stop", "index": 0},
		fields{"type": "message_delta", "delta": fields{"stop_reason": stop}, "usage": usage},
		fields{"type": "message_stop"})
}

// openaiAPI is the Responses API, as far as codex uses it.
func openaiAPI(w http.ResponseWriter, r *http.Request) {
	if keyless(w, r, "Authorization", "Bearer ") {
		return
	}
	if r.URL.Path != "/v1/responses" {
		answerJSON(w, fields{"models": []any{}, "data": []any{}})
		return
	}
	raw, _ := io.ReadAll(r.Body)
	item := fields{"type": "message", "role": "assistant", "id": "msg_1", "content": []any{fields{"type": "output_text", "text": "It is written."}}}
	if !strings.Contains(string(raw), `"custom_tool_call_output"`) { // its only tool runs JavaScript, which calls the others
		script, _ := json.Marshal(map[string]string{"cmd": taskScript})
		item = fields{"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "namespace": "functions", "name": "exec",
			"input": fmt.Sprintf("const done = await tools.exec_command(%s); text(done.output)", script)}
	}
	serveEvents(w,
		fields{"type": "response.created", "response": fields{"id": "resp_1"}},
		fields{"type": "response.output_item.done", "output_index": 0, "item": item},
		fields{"type": "response.completed", "response": fields{"id": "resp_1", "output": []any{item}, "usage": fields{
			"input_tokens": 10, "input_tokens_details": nil, "output_tokens": 10, "output_tokens_details": nil, "total_tokens": 20,
		}}})
}

// geminiAPI is generateContent, as far as gemini uses it.
func geminiAPI(w http.ResponseWriter, r *http.Request) {
	if keyless(w, r, "X-Goog-Api-Key", "") {
		return
	}
	var req struct{ Contents, Tools json.RawMessage }
	_ = json.NewDecoder(r.Body).Decode(&req)
	part := fields{"text": "It is written."}
	if !strings.Contains(r.URL.Path, ":stream") { // asks how hard the task is
		part["text"] = `{"complexity_reasoning":"It is one file.","complexity_score":1}`
	}
	if strings.Contains(string(req.Tools), `"run_shell_command"`) && !strings.Contains(string(req.Contents), `"functionResponse"`) {
		part = fields{"functionCall": fields{"name": "run_shell_command", "args": fields{"command": taskScript}}}
	}
	content := fields{"candidates": []any{fields{"content": fields{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": fields{"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}}
	if !strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
		content["totalTokens"] = 10
		answerJSON(w, content)
		return
	}
	serveEvents(w, content)
}
