package mcptask

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Methods are the methods of the extension.
var Methods = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// Params are the params of tasks/get and tasks/cancel.
type Params struct {
	mcp.ParamsBase
	TaskID string `json:"taskId"`
}

// UpdateParams are the params of tasks/update.
type UpdateParams struct {
	mcp.ParamsBase
	TaskID         string                     `json:"taskId"`
	InputResponses map[string]json.RawMessage `json:"inputResponses"`
}

// fields are common to all forms of a task.
type fields struct {
	TaskID        string    `json:"taskId"`
	Status        string    `json:"status"`
	StatusMessage string    `json:"statusMessage,omitempty"`
	CreatedAt     time.Time `json:"createdAt"`
	LastUpdatedAt time.Time `json:"lastUpdatedAt"`
	TTL           int64     `json:"ttlMs"`
	PollInterval  int64     `json:"pollIntervalMs"`
}

type created struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
	fields
}

// detailed is a task with the fields of its status. ResultType is set in answers.
type detailed struct {
	mcp.ResultBase
	ResultType string `json:"resultType,omitempty"`
	fields
	InputRequests mcp.InputRequestMap `json:"inputRequests,omitempty"`
	Result        json.RawMessage     `json:"result,omitempty"`
	Error         *jsonrpc.Error      `json:"error,omitempty"`
}

type acknowledged struct {
	mcp.ResultBase
	ResultType string `json:"resultType"`
}

// Offer adds the extension's methods to a server. Its capabilities need [Extension],
// and its middleware [Tasks.Middleware].
func (t *Tasks) Offer(s *mcp.Server) error {
	get := func(_ context.Context, k *task, _ *Params) (*detailed, error) {
		d := k.detailed()
		if d == nil {
			return nil, t.unknown()
		}
		d.ResultType = "complete"
		return d, nil
	}
	if err := mcp.AddReceivingCustomMethod(s, "tasks/get", about(t, get)); err != nil {
		return err
	}
	cancel := func(_ context.Context, k *task, _ *Params) (*acknowledged, error) {
		k.stop()
		return &acknowledged{ResultType: "complete"}, nil
	}
	if err := mcp.AddReceivingCustomMethod(s, "tasks/cancel", about(t, cancel)); err != nil {
		return err
	}
	update := func(_ context.Context, k *task, p *UpdateParams) (*acknowledged, error) {
		return &acknowledged{ResultType: "complete"}, k.answer(p.InputResponses)
	}
	return mcp.AddReceivingCustomMethod(s, "tasks/update", about(t, update))
}

func (p *Params) taskID() string       { return p.TaskID }
func (p *UpdateParams) taskID() string { return p.TaskID }

// about answers requests about one task of the requesting client.
func about[P interface {
	mcp.Params
	taskID() string
}, R any](t *Tasks, do func(context.Context, *task, P) (R, error)) func(context.Context, *mcp.ServerSession, P) (R, error) {
	return func(ctx context.Context, _ *mcp.ServerSession, p P) (none R, err error) {
		if !declared(p.GetMeta()) {
			return none, Undeclared()
		}
		k, err := t.find(ctx, p.taskID())
		if err != nil {
			return none, err
		}
		return do(ctx, k, p)
	}
}

// seed returns the answer that creates the task.
func (k *task) seed() *created {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	return &created{ResultType: "task", fields: k.fields()}
}

// detailed returns the task in the form for its client; nil if it was forgotten. It marks a result
// as fetched.
func (k *task) detailed() *detailed {
	d, _, ended := k.state()
	if ended {
		k.wasFetched()
	}
	return d
}

// wasFetched records that the client has the result.
func (k *task) wasFetched() {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.fetched = time.Now()
}

// state is like detailed, and returns a channel that is closed when the status changes.
func (k *task) state() (d *detailed, changed <-chan struct{}, ended bool) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	if k.forgotten {
		return nil, nil, true
	}
	d = &detailed{fields: k.fields(), Result: k.result, Error: k.err}
	if k.status == inputRequired {
		d.InputRequests = mcp.InputRequestMap{}
		maps.Copy(d.InputRequests, k.requests)
	}
	return d, k.changed, k.hasEnded()
}

// fields returns the task's present fields. The caller must hold the lock. The time to live grows
// while the task works, because the task lives at least as long as its call.
func (k *task) fields() fields {
	from := k.updated
	if k.status == working {
		from = time.Now()
	}
	return fields{
		TaskID: k.id, Status: k.status, StatusMessage: k.message, CreatedAt: k.created.UTC(), LastUpdatedAt: k.updated.UTC(),
		TTL: (from.Sub(k.created) + k.all.opts.Keep).Milliseconds(), PollInterval: pollEvery.Milliseconds(),
	}
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}
