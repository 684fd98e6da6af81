package profile

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
)

// CallerFunc makes a function a [Caller], for instance a session's method CallOwn.
type CallerFunc func(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)

// Call implements Caller.
func (f CallerFunc) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	return f(ctx, name, raw)
}

// Session is the part of a session that [Bind] needs; *wisbox.Session implements it.
type Session interface {
	Caller
	ID() string
	// CallOwn calls a tool by wisbox's own name.
	CallOwn(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error)
	// Added describes the embedder's own tools; nil if there are none.
	Added() *tool.Set
	// GuidanceAs explains to a model how to work in the session with a profile's tools.
	GuidanceAs(profile string) (string, error)
	Close(ctx context.Context) error
}

// Bound is a session with the tools of a client's profile and the embedder's own tools.
type Bound struct {
	session Session
	name    string
	tools   *Profile
}

// Bind returns a session for one client in a profile, which may differ from the session's own
// profile. base describes wisbox's own tools. An unknown profile is invalid.
func Bind(name string, base *tool.Set, s Session) (*Bound, error) {
	tools, err := Open(name, base, CallerFunc(s.CallOwn))
	if err != nil {
		return nil, err
	}
	return &Bound{s, name, tools}, nil
}

// ID returns the session's name.
func (b *Bound) ID() string { return b.session.ID() }

// Call runs a tool of the profile, or one of the embedder's own tools.
func (b *Bound) Call(ctx context.Context, name string, raw json.RawMessage) (*tool.Result, error) {
	if added := b.session.Added(); added != nil {
		if _, ok := added.Lookup(name); ok {
			return b.session.Call(ctx, name, raw)
		}
	}
	return b.tools.Call(ctx, name, raw)
}

// Guidance returns the session's guidance for the profile's tools.
func (b *Bound) Guidance() (string, error) { return b.session.GuidanceAs(b.name) }

// Unwrap returns the session, for its other methods.
func (b *Bound) Unwrap() any { return b.session }

// Close ends the state that the tools keep for this client, then closes the session.
func (b *Bound) Close(ctx context.Context) error {
	b.tools.Close(ctx)
	return b.session.Close(ctx)
}
