package wisbox

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/wisbox/wisbox/tool"
)

// changes gathers what the tools below a profile's tool have changed: its own
// result, in the foreign contract's shape, doesn't say.
type changes struct {
	mu  sync.Mutex
	all []tool.Change
}

type changesKey struct{}

// changesOf is a set whose calls report to the changes in their context.
type changesOf struct{ *tool.Set }

func (c changesOf) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	res, err := c.Set.Call(ctx, name, raw)
	if sum, ok := ctx.Value(changesKey{}).(*changes); ok && err == nil {
		sum.mu.Lock()
		defer sum.mu.Unlock()
		sum.all = append(sum.all, res.Changes...)
	}
	return res, err
}

// collectChanges makes the result of a profile's tool tell what was changed for it.
func collectChanges(ctx context.Context, call func(context.Context) (*tool.Result, error)) (*tool.Result, error) {
	sum := &changes{}
	res, err := call(context.WithValue(ctx, changesKey{}, sum))
	if err == nil && len(sum.all) > 0 {
		res.Changes = sum.all
	}
	return res, err
}
