package far

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// Bounds of clients that may be hostile.
const (
	guestStreams = 512       // simultaneous connections of an owner's clients, including those being closed
	guestWindow  = 256 << 10 // bytes that a connection may send ahead
)

// Guests serves clients that may be hostile, and counts their connections by owner. The zero value
// works.
type Guests struct {
	mu  sync.Mutex
	all map[string]map[*yamux.Session]bool
}

// Serve is like the function Serve for a client of an owner. If the owner's clients together have
// more connections than any wisbox opens, it closes the stream.
func (g *Guests) Serve(ctx context.Context, stream io.ReadWriteCloser, hello Hello, owner string, serve func(context.Context, net.Conn)) error {
	config := config()
	config.MaxStreamWindowSize = guestWindow
	var own *yamux.Session
	defer func() { g.leave(owner, own) }()
	return answer(ctx, stream, hello, config, func(mux *yamux.Session) bool {
		own = mux
		return g.streams(owner, mux) > guestStreams
	}, serve)
}

// streams counts the connections of an owner, including those of mux.
func (g *Guests) streams(owner string, mux *yamux.Session) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[string]map[*yamux.Session]bool{}
	}
	if g.all[owner] == nil {
		g.all[owner] = map[*yamux.Session]bool{}
	}
	g.all[owner][mux] = true
	for one := range g.all[owner] {
		n += one.NumStreams()
	}
	return n
}

func (g *Guests) leave(owner string, mux *yamux.Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all[owner], mux)
	if len(g.all[owner]) == 0 {
		delete(g.all, owner)
	}
}
