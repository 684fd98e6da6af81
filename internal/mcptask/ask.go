package mcptask

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ask waits until the client has answered all of the tool's questions. As the protocol requires,
// the client sees keys that are unique within the task, since a tool may use the same name twice.
func (k *task) ask(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	resumed := k.put(questions)
	waited := time.NewTimer(k.all.opts.Keep)
	defer waited.Stop()
	select {
	case <-resumed:
	case <-ctx.Done():
	case <-waited.C:
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	open := len(k.requests)
	k.requests = nil
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case open > 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("the task needed an answer and none came within %s", k.all.opts.Keep)}
	}
	return k.answers, nil
}

func (k *task) put(questions mcp.InputRequestMap) (resumed <-chan struct{}) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.asked++
	k.requests, k.names = mcp.InputRequestMap{}, map[string]string{}
	for name, question := range questions {
		key := fmt.Sprintf("%s-%d", name, k.asked)
		k.requests[key], k.names[key] = question, name
	}
	k.answers, k.resumed = mcp.InputResponseMap{}, make(chan struct{})
	if !k.stopping {
		k.become(inputRequired, "")
	}
	return k.resumed
}

// answer accepts answers to open questions and ignores others. The call continues when no question
// is open. A task that is being cancelled accepts none.
func (k *task) answer(responses map[string]json.RawMessage) error {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	if k.stopping {
		return nil
	}
	taken := mcp.InputResponseMap{}
	for key, raw := range responses {
		if k.requests[key] == nil {
			continue
		}
		var one mcp.InputResponseMap
		if err := json.Unmarshal(fmt.Appendf(nil, `{"answer":%s}`, raw), &one); err != nil || one["answer"] == nil {
			return invalid("inputResponses has no valid answer under %q; give the result of the request with that key in inputRequests", key)
		}
		taken[key] = one["answer"]
	}
	for key, one := range taken {
		k.answers[k.names[key]] = one
		delete(k.requests, key)
	}
	if len(taken) > 0 && len(k.requests) == 0 {
		k.become(working, "")
		close(k.resumed)
	}
	return nil
}
