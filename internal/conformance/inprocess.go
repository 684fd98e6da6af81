package conformance

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/wisbox/wisbox/tool"
)

// InProcess is a target in this process.
type InProcess struct {
	// Start opens a session; an error counts as a refusal to start.
	Start func(ctx context.Context, opts OpenOptions) (*Local, error)
}

// Local is a session in this process. Where and End may be nil.
type Local struct {
	Do    func(ctx context.Context, tool string, args json.RawMessage) (*tool.Result, error)
	Where func() string // the host directory of the workspace
	End   func(ctx context.Context) error
}

// Open implements [Target].
func (p *InProcess) Open(ctx context.Context, opts OpenOptions) (Session, error) {
	l, err := p.Start(ctx, opts)
	if err != nil {
		return nil, &Refused{Words: err.Error()}
	}
	return local{l}, nil
}

type local struct{ *Local }

func (l local) Call(ctx context.Context, name string, args json.RawMessage) (Reply, error) {
	res, err := l.Do(ctx, name, args)
	reply := Reply{Answer: AnswerOf(res, err)}
	if err == nil {
		reply.Raw, err = json.Marshal(map[string]any{"structuredContent": res.Value, "text": res.Text})
	} else {
		reply.Raw, err = json.Marshal(tool.AsError(err))
	}
	if err != nil {
		return reply, fmt.Errorf("marshal the answer: %w", err)
	}
	return reply, nil
}

func (l local) Overlay() string {
	if l.Where == nil {
		return ""
	}
	return l.Where()
}

func (local) Broken() []string { return nil }

func (l local) Close(ctx context.Context) error {
	if l.End == nil {
		return nil
	}
	return l.End(ctx)
}
