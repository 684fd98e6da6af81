package conformance

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
)

// Target is an implementation that the cases test.
type Target interface {
	// Open starts a session. If the server refuses to start, the error is a *Refused.
	Open(ctx context.Context, opts OpenOptions) (Session, error)
}

// OpenOptions are the options of a session.
type OpenOptions struct {
	Flags []string // of `wisbox mcp`
	Dir   string   // the case's own directory, "" for none
}

// Session is one open session. Call may be used from many goroutines at once.
type Session interface {
	// Call makes one call. An error concerns the transport, never the tool. If progress isn't nil,
	// it gets the call's progress until the answer.
	Call(ctx context.Context, tool string, args json.RawMessage, progress func(message string)) (Reply, error)
	// Overlay returns the host directory of the workspace, "" if it isn't known yet.
	Overlay() string
	// Peak returns the server's peak memory in bytes since the last reset; -1 if it is unknown.
	Peak(reset bool) int64
	// Broken returns the rules broken since the last call of Broken.
	Broken() []string
	// Close ends the session. The error describes problems of the end.
	Close(ctx context.Context) error
}

// Refused is the error of a server that refused to start.
type Refused struct{ Words string }

func (r *Refused) Error() string { return "the server did not start: " + r.Words }

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

func (l local) Call(ctx context.Context, name string, args json.RawMessage, progress func(string)) (Reply, error) {
	if progress != nil {
		ctx = tool.WithProgress(ctx, progress)
	}
	line, err := json.Marshal(map[string]any{"result": toolResult(l.Do(ctx, name, args))})
	return Reply{ParseReply(line), line}, err
}

// toolResult returns an outcome as MCP's result on the wire.
func toolResult(res *tool.Result, err error) map[string]any {
	content := func(text string) []any { return []any{map[string]any{"type": "text", "text": text}} }
	if err != nil {
		e := tool.AsError(err)
		return map[string]any{"content": content(e.Error()), "isError": true, "_meta": map[string]any{"wisbox/error": e}}
	}
	return map[string]any{"content": content(res.Text), "structuredContent": res.Value, "isError": res.Failed}
}

func (l local) Overlay() string {
	if l.Where == nil {
		return ""
	}
	return l.Where()
}

func (local) Peak(bool) int64  { return -1 }
func (local) Broken() []string { return nil }

func (l local) Close(ctx context.Context) error {
	if l.End == nil {
		return nil
	}
	return l.End(ctx)
}
