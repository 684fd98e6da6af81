package profile

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
)

// CallerFunc is a function as a [Caller], such as a session's method CallOwn.
type CallerFunc func(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)

// Call implements Caller.
func (f CallerFunc) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	return f(ctx, name, raw)
}

// Session is what [Bind] needs of a session; *wisbox.Session is one.
type Session interface {
	Caller
	ID() string
	// CallOwn is Call by wisbox's own names.
	CallOwn(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)
	// Added describes the tools that the embedder has added; nil means none.
	Added() *tool.Set
	// GuidanceAs tells a model how to work in the session with a profile's tools.
	GuidanceAs(profile string) (string, error)
	Close(ctx context.Context) error
}

// Bound is a session as a client has it that asked for a profile: its tools are the
// profile's and those that the embedder has added.
type Bound struct {
	session Session
	name    string
	tools   *Profile
}

// Bind gives one client a session in a profile, whatever profile the session was
// created with. base describes wisbox's own tools. An unknown profile is invalid.
func Bind(name string, base *tool.Set, s Session) (*Bound, error) {
	tools, err := Open(name, base, CallerFunc(s.CallOwn))
	if err != nil {
		return nil, err
	}
	return &Bound{s, name, tools}, nil
}

// ID names the session.
func (b *Bound) ID() string { return b.session.ID() }

// Call runs a tool of the profile, or one that the embedder has added.
func (b *Bound) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	if added := b.session.Added(); added != nil {
		if _, ok := added.Lookup(name); ok {
			return b.session.Call(ctx, name, raw)
		}
	}
	return b.tools.Call(ctx, name, raw)
}

// Guidance is the session's, with the profile's tools.
func (b *Bound) Guidance() (string, error) { return b.session.GuidanceAs(b.name) }

// Unwrap returns the session, for what else it can do.
func (b *Bound) Unwrap() any { return b.session }

// Close ends what the tools keep for this client, then closes the session.
func (b *Bound) Close(ctx context.Context) error {
	b.tools.Close(ctx)
	return b.session.Close(ctx)
}
