package mcptask

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The statuses of a task.
const (
	working       = "working"
	inputRequired = "input_required"
	completed     = "completed"
	failed        = "failed"
	cancelled     = "cancelled"
)

// task is a call that continues after its request. The lock of its Tasks guards the fields that
// change.
type task struct {
	all    *Tasks
	of     *client
	who    any
	id     string
	cancel context.CancelFunc

	created, updated time.Time
	status, message  string
	stopping         bool          // its client has cancelled it
	changed          chan struct{} // closed and replaced at each change of the status

	asked    int                  // number of questions so far, for their keys
	requests mcp.InputRequestMap  // unanswered
	names    map[string]string    // the tool's names of all current questions
	answers  mcp.InputResponseMap // by those names
	resumed  chan struct{}        // closed when all of them are answered

	params    int // bytes of its call's params, until it ends
	result    json.RawMessage
	err       *jsonrpc.Error
	size      int       // bytes of the result
	fetched   time.Time // when the client fetched the result; zero if it hasn't
	forgotten bool
	expiry    *time.Timer
}

// newTask adds a task to a client.
func newTask(t *Tasks, who any, own *client, params int, cancel context.CancelFunc) *task {
	now := time.Now()
	k := &task{
		all: t, of: own, who: who, id: rand.Text(), cancel: cancel,
		created: now, updated: now, status: working, changed: make(chan struct{}), params: params,
	}
	own.tasks[k.id] = k
	own.hold(&own.params, params)
	own.work.Add(1)
	return k
}

// become changes the status. The caller must hold the lock.
func (k *task) become(status, message string) {
	k.status, k.message, k.updated = status, message, time.Now()
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *task) hasEnded() bool { return k.status != working && k.status != inputRequired }

func (k *task) note(text string) {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	if k.status == working && !k.stopping {
		k.message, k.updated = text, time.Now()
	}
}

// stop cancels the call. The task ends when the call does.
func (k *task) stop() {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	if !k.hasEnded() && !k.stopping {
		k.stopping = true
		k.become(k.status, "being cancelled")
		k.cancel()
	}
}

// finish ends the task with its call's answer, even if it was cancelled too late to prevent it.
func (k *task) finish(res mcp.Result, err error) {
	said, _ := res.(*mcp.CallToolResult)
	wentWell := err == nil && (said == nil || !said.IsError)
	var result json.RawMessage
	if err == nil {
		result, err = json.Marshal(res)
	}
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	defer k.of.work.Done()
	k.requests = nil
	if k.of.gone {
		k.of.hold(&k.of.params, -k.params)
		k.become(cancelled, "its client or the server has gone")
		return
	}
	stopped := k.stopping && !wentWell
	if stopped {
		result = nil
	}
	if most := k.all.opts.MaxBytes; !k.of.settle(k, len(result), most) {
		result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(
			"the result has %d bytes and isn't kept: the results that a client hasn't fetched have %d together at most; fetch them first, or ask for less", len(result), most)}
	}
	k.result = result
	switch {
	case stopped:
		k.become(cancelled, "the client cancelled it")
	case err != nil:
		k.err = asProtocolError(err)
		k.become(failed, k.err.Message)
	default:
		k.become(completed, "")
	}
	k.expiry = time.AfterFunc(k.all.opts.Keep, k.expire)
}

func (k *task) expire() {
	k.all.mu.Lock()
	defer k.all.mu.Unlock()
	k.of.forget(k)
	if len(k.of.tasks) == 0 && k.all.clients[k.who] == k.of {
		delete(k.all.clients, k.who)
	}
}

// asProtocolError hides internal details from clients.
func asProtocolError(err error) *jsonrpc.Error {
	if said := (*jsonrpc.Error)(nil); errors.As(err, &said) {
		return said
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the call failed in the server"}
}
