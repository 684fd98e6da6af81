package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// OwnNamed is implemented by a session whose tools may have other names than
// wisbox's own: resources are read by CallOwn, which takes those, and all of
// wisbox's own tools are there. Without it resources are read by Call.
type OwnNamed interface {
	CallOwn(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error)
}

// Guided is implemented by a session that tells a model how to work in it: what it
// has and was opened with. Without it the server's instructions do.
type Guided interface{ Guidance() (string, error) }

// Watched is implemented by a session that tells of changes of its files, until ctx
// ends or the session is closed: without it no resource can be subscribed to.
type Watched interface {
	Watch(ctx context.Context, path string) (<-chan vfs.Change, error)
}

// As finds an optional capability of a session, such as [Watched]: an interface that
// it, or what it wraps, implements. A session that wraps another has an Unwrap method
// that returns it, as a Session or as any.
func As[T any](s any) (T, bool) {
	for s != nil {
		if found, ok := s.(T); ok {
			return found, true
		}
		switch w := s.(type) {
		case interface{ Unwrap() Session }:
			s = w.Unwrap()
		case interface{ Unwrap() any }:
			s = w.Unwrap()
		default:
			s = nil
		}
	}
	var none T
	return none, false
}

// ownNamed is a session by wisbox's own names.
type ownNamed struct {
	Session
	own OwnNamed
}

func (s ownNamed) Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	return s.own.CallOwn(ctx, name, args)
}

// under is what resources are read through.
func under(s Session) Session {
	if own, ok := As[OwnNamed](s); ok {
		return ownNamed{s, own}
	}
	return s
}

// has says that a session has one of wisbox's own tools, without a call of it.
func (r *resources) has(s Session, name string) bool {
	if _, ok := As[OwnNamed](s); ok {
		return true
	}
	_, ok := r.server.set.Lookup(name)
	return ok
}
