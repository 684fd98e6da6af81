package mcptask

import (
	"context"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const maxListened = 256 // tasks in one request to listen

// Listening delivers changes of tasks to a client. The SDK can send neither of the two
// notifications.
type Listening struct {
	// IDs are the existing ones of the requested tasks.
	IDs   []string
	all   []*task
	meta  mcp.Meta
	write sync.Mutex
}

// Listen checks a subscriptions/listen request that names tasks. id is the request's.
func (t *Tasks) Listen(ctx context.Context, id any, meta map[string]any, ids []string) (*Listening, error) {
	if !declared(meta) {
		return nil, Undeclared()
	}
	if len(ids) > maxListened {
		return nil, invalid("taskIds has %d ids; name at most %d in one request, and the others in another", len(ids), maxListened)
	}
	l := &Listening{IDs: []string{}, meta: mcp.Meta{mcp.MetaKeySubscriptionID: id}}
	for _, id := range ids {
		if k, err := t.find(ctx, id); err == nil && !slices.Contains(l.IDs, id) {
			l.IDs, l.all = append(l.IDs, id), append(l.all, k)
		}
	}
	return l, nil
}

// Run acknowledges by send, then sends each task and its later changes of status. It returns when
// all tasks have ended, ctx has, or send fails. The answer to the request is that of Result.
func (l *Listening) Run(ctx context.Context, send func(method string, params any) error) {
	ack := map[string]any{"_meta": l.meta, "notifications": map[string]any{"taskIds": l.IDs}}
	if send("notifications/subscriptions/acknowledged", ack) != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var following sync.WaitGroup
	for _, k := range l.all {
		following.Go(func() {
			if l.follow(ctx, k, send) != nil {
				cancel()
			}
		})
	}
	following.Wait()
}

func (l *Listening) follow(ctx context.Context, k *task, send func(string, any) error) error {
	for {
		l.write.Lock()
		state, changed, ended := k.state()
		var err error
		if state != nil { // unless it was forgotten
			state.Meta = l.meta
			err = send("notifications/tasks", state)
		}
		l.write.Unlock()
		switch {
		case err != nil:
			return err
		case ended:
			k.wasFetched()
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Result returns the answer to the request to listen.
func (l *Listening) Result() mcp.Result {
	return &acknowledged{ResultBase: mcp.ResultBase{Meta: l.meta}, ResultType: "complete"}
}
