package mcpserver

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/wisbox/wisbox/tool"
)

// binding ties a session to a connection. The first call that needs the session opens it, and it is closed exactly
// once.
type binding struct {
	open  func(context.Context) (Session, error)
	set   *tool.Set       // the session's tools
	owner string          // the HTTP client, "" on pipes
	ctx   context.Context // lives until close
	stop  context.CancelFunc

	mu      sync.Mutex
	current Session
	err     error         // of the last attempt to open
	opening chan struct{} // closed when the attempt that runs is over
	closed  bool          // or being closed
	ended   chan struct{} // closed when closing is done
}

func (s *Server) newBinding(owner string) *binding {
	b := &binding{open: s.opts.Open, set: s.set, owner: owner, ended: make(chan struct{})}
	if b.open == nil {
		b.open = func(context.Context) (Session, error) { return fixed{s.set}, nil }
	}
	b.ctx, b.stop = context.WithCancel(context.WithValue(context.Background(), ownerKey{}, owner))
	return b
}

// bindingOf returns the binding of a connection, or makes one that ends with the connection.
func (s *Server) bindingOf(conn *mcp.ServerSession, owner string) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.bindings[conn]
	if b == nil {
		b = s.newBinding(owner)
		s.bindings[conn] = b
		go func() {
			_ = conn.Wait()
			s.release(conn)
		}()
	}
	return b
}

// boundTo returns the binding of a connection, nil if it has none.
func (s *Server) boundTo(conn *mcp.ServerSession) *binding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bindings[conn]
}

// findOpen returns the session of a connection if it is open.
func (s *Server) findOpen(conn *mcp.ServerSession, owner, name string) (Session, func(), error) {
	b := s.boundTo(conn)
	if b == nil || b.owner != owner {
		return nil, nil, errNoSession
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil || name != "" && name != b.current.ID() {
		return nil, nil, errNoSession
	}
	return b.current, func() {}, nil
}

var errNoSession = tool.Errorf(tool.NotFound, "session not found")

// ownedBy reports whether the session of a connection was opened by that client.
func (s *Server) ownedBy(conn *mcp.ServerSession, owner string) bool {
	b := s.boundTo(conn)
	return b != nil && b.owner == owner
}

// release closes the session of a connection, if it has one, and forgets it. It returns when the session is closed,
// even if another caller closes it.
func (s *Server) release(conn *mcp.ServerSession) {
	b := s.boundTo(conn)
	s.resources.unwatch(conn)
	if b != nil {
		s.closeBinding(b)
	}
	s.mu.Lock()
	delete(s.bindings, conn)
	s.mu.Unlock()
}

func (s *Server) closeBinding(b *binding) {
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.CloseWithin)
	defer cancel()
	if err := b.close(ctx); err != nil {
		s.opts.Logger.Error("close a session", "error", err)
	}
}

// call runs a tool in the session, until the session ends. It opens no session for arguments that the tool would
// refuse.
func (b *binding) call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	if t, ok := b.set.Lookup(name); ok && !b.isOpen() {
		if err := t.Check(args); err != nil {
			return nil, err
		}
	}
	session, err := b.session(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	return session.Call(ctx, name, args)
}

func (b *binding) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current != nil
}

// session returns the session of the connection. If opening failed, the next call tries again. A caller that gives up
// doesn't stop the opening for others.
func (b *binding) session(ctx context.Context) (Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, tool.Errorf(tool.Closed, "the session has ended; connect again")
	}
	if b.current != nil {
		defer b.mu.Unlock()
		return b.current, nil
	}
	if b.opening == nil {
		b.opening = make(chan struct{})
		go b.attempt(valued{b.ctx, ctx}, b.opening)
	}
	opening := b.opening
	b.mu.Unlock()
	select {
	case <-opening:
		return b.outcome()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// settled returns the session, or nil if there is none. It waits for a session that is being opened.
func (b *binding) settled() Session {
	b.mu.Lock()
	opening := b.opening
	b.mu.Unlock()
	if opening != nil {
		<-opening
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current
}

func (b *binding) attempt(ctx context.Context, over chan struct{}) {
	session, err := b.open(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current, b.err, b.opening = session, err, nil
	if err != nil {
		b.current = nil
	}
	close(over)
}

func (b *binding) outcome() (Session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, tool.Errorf(tool.Closed, "the session has ended; connect again")
	case b.current == nil && b.err == nil: // another attempt has begun meanwhile
		return nil, tool.Errorf(tool.Unavailable, "the session is not open; try again")
	case b.current == nil:
		return nil, b.err
	}
	return b.current, nil
}

// close closes the session. Further callers wait until the first has closed it.
func (b *binding) close(ctx context.Context) error {
	b.mu.Lock()
	again, opening := b.closed, b.opening
	b.closed = true
	b.mu.Unlock()
	if again {
		<-b.ended
		return nil
	}
	defer close(b.ended)
	b.stop()
	if opening != nil {
		<-opening
	}
	b.mu.Lock()
	session := b.current
	b.current = nil
	b.mu.Unlock()
	if session == nil {
		return nil
	}
	return session.Close(ctx)
}

// fixed is a session that consists of the set.
type fixed struct{ set *tool.Set }

func (fixed) ID() string { return "default" }

func (f fixed) Call(ctx context.Context, name string, args json.RawMessage) (*tool.Result, error) {
	return f.set.Call(ctx, name, args)
}

func (fixed) Close(context.Context) error { return nil }
