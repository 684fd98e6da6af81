package conformance

import (
	"context"
	"encoding/json"
)

// Target is what the cases run against.
type Target interface {
	// Open starts a session. A server that refuses to start is a *Refused.
	Open(ctx context.Context, opts OpenOptions) (Session, error)
}

// OpenOptions say how a session starts.
type OpenOptions struct {
	Flags []string // of `wisbox mcp`
	Dir   string   // the case's own directory, "" for none
}

// Session is one open session. Call may be used from many goroutines at once.
type Session interface {
	// Call makes one call. The error is of the way to the tool, never the tool's.
	Call(ctx context.Context, tool string, args json.RawMessage) (Reply, error)
	// Overlay is the host directory of the workspace, "" while it is not known.
	Overlay() string
	// Broken lists the rules that were broken since it was last asked.
	Broken() []string
	// Close ends the session. The error says what was wrong with the end.
	Close(ctx context.Context) error
}

// Memory is what a session may also know: the peak of its process.
type Memory interface {
	ResetPeak() error
	PeakBytes() (int64, error)
}

// Reply is one answer, as it came and as it is understood.
type Reply struct {
	Answer Answer
	Raw    []byte // the line or object as it came
}

// Refused is a server that did not start and said why.
type Refused struct{ Words string }

func (r *Refused) Error() string { return "the server did not start: " + r.Words }
