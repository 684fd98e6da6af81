package mcpserver

import (
	"context"
	"encoding/json"

	"github.com/wisbox/wisbox/tool"
	"github.com/wisbox/wisbox/vfs"
)

// OwnNamed is implemented by a session whose tools may have other names than wisbox's own. Resources are read by
// CallOwn, which takes wisbox's own names and knows all of these tools. Without it resources are read by Call.
type OwnNamed interface {
	CallOwn(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error)
}

// Guided is implemented by a session that explains to a model how to work in it, with its content and options. Without
// it the server's instructions are used.
type Guided interface{ Guidance() (string, error) }

// Watched is implemented by a session that reports changes of its files, until ctx ends or the session is closed.
// Without it clients can't subscribe to resources.
type Watched interface {
	Watch(ctx context.Context, path string) (<-chan vfs.Change, error)
}

// As finds an optional capability of a session, such as [Watched]: an interface that it or a session wrapped by it
// implements. A wrapper has an Unwrap method that returns the wrapped session, as a Session or as any.
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

// ownNamed is a session called by wisbox's own names.
type ownNamed struct {
	Session
	own OwnNamed
}

func (s ownNamed) Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	return s.own.CallOwn(ctx, name, args)
}

// under returns the session through which resources are read.
func under(s Session) Session {
	if own, ok := As[OwnNamed](s); ok {
		return ownNamed{s, own}
	}
	return s
}

// has reports whether a session has one of wisbox's own tools, without calling it.
func (r *resources) has(s Session, name string) bool {
	if _, ok := As[OwnNamed](s); ok {
		return true
	}
	_, ok := r.server.set.Lookup(name)
	return ok
}
