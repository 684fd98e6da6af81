// Package registrytest provides an engine with fake sandboxes, for tests of packages that use a
// registry.
package registrytest

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// Engine is a fake [registry.Engine]. The zero value works; set the fields before use.
type Engine struct {
	// Ports maps ports of every sandbox to addresses on this machine.
	Ports map[uint16]string
	// Fail, if set, is called before each operation with its name.
	Fail func(operation string) error
	// Stuck, if set, blocks the creation of sandboxes until it is closed.
	Stuck chan struct{}
	// NoPause makes sandboxes that can't be paused.
	NoPause bool

	mu    sync.Mutex
	boxes map[string]*Box
}

var _ registry.Engine = (*Engine)(nil)

func (e *Engine) fails(operation string) error {
	if e.Fail == nil {
		return nil
	}
	return e.Fail(operation)
}

// Create implements [registry.Engine].
func (e *Engine) Create(ctx context.Context, r registry.Record) (registry.Box, error) {
	if e.Stuck != nil {
		select {
		case <-e.Stuck:
		case <-ctx.Done():
		}
	}
	if err := e.fails("create"); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.boxes == nil {
		e.boxes = map[string]*Box{}
	}
	e.boxes[r.ID] = &Box{e: e, ID: r.ID, allow: r.Allow, deny: r.Deny}
	return e.shown(e.boxes[r.ID]), nil
}

func (e *Engine) shown(b *Box) registry.Box {
	if e.NoPause {
		return struct{ registry.Box }{b}
	}
	return b
}

// Open implements [registry.Engine].
func (e *Engine) Open(_ context.Context, id string) (registry.Box, error) {
	if err := e.fails("open"); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := e.boxes[id]
	if !ok {
		return nil, tool.Errorf(tool.NotFound, "session %s not found", id)
	}
	return e.shown(b), nil
}

// Remove implements [registry.Engine].
func (e *Engine) Remove(_ context.Context, id string) error {
	if err := e.fails("remove"); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, id)
	return nil
}

// IDs implements [registry.Engine].
func (e *Engine) IDs(context.Context) (ids []string, _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.boxes {
		ids = append(ids, id)
	}
	return ids, e.fails("list")
}

// Box is a sandbox of an [Engine].
type Box struct {
	ID string
	e  *Engine

	mu          sync.Mutex
	paused      bool
	begun       int
	looks       int
	allow, deny []string
}

var (
	_ registry.Pauser = (*Box)(nil)

	_ registry.Restarter = (*Box)(nil)
	_ registry.Forker    = (*Box)(nil)

	_ registry.Gauger    = (*Box)(nil)
	_ registry.Networker = (*Box)(nil)
	_ registry.Readier   = (*Box)(nil)
)

// Dial implements [registry.Box].
func (b *Box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	addr, ok := b.e.Ports[port]
	if !ok {
		return nil, tool.Errorf(tool.NotFound, "nothing listens on port %d", port)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
}

// Close implements [registry.Box].
func (b *Box) Close(context.Context) error { return nil }

// Ready implements [registry.Readier].
func (b *Box) Ready(context.Context) error { return b.e.fails("ready") }

// Pause implements [registry.Pauser].
func (b *Box) Pause(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = true
	return b.e.fails("pause")
}

// Resume implements [registry.Pauser].
func (b *Box) Resume(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
	return b.e.fails("resume")
}

// Halt implements [registry.Restarter].
func (b *Box) Halt(context.Context) error { return b.e.fails("halt") }

// Restart implements [registry.Restarter].
func (b *Box) Restart(ctx context.Context, _ map[string]string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.paused = false
	b.begun++
	return errors.Join(b.e.fails("restart"), ctx.Err())
}

// Begun returns the number of restarts of a sandbox.
func (e *Engine) Begun(id string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[id]
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// Fork implements [registry.Forker].
func (b *Box) Fork(ctx context.Context, r registry.Record) (registry.Box, error) {
	if err := b.e.fails("fork"); err != nil {
		return nil, err
	}
	return b.e.Create(ctx, r)
}

// Gauge implements [registry.Gauger]. The values grow with each call.
func (b *Box) Gauge(context.Context) (registry.Gauge, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks++
	n := int64(b.looks)
	return registry.Gauge{Running: true, CPU: time.Duration(n), Memory: n << 20, Disk: n << 10}, b.e.fails("gauge")
}

// SetNetwork implements [registry.Networker]. If Fail refuses "networked", the rules take effect
// anyway.
func (b *Box) SetNetwork(ctx context.Context, allow, deny []string) error {
	if err := errors.Join(b.e.fails("network"), ctx.Err()); err != nil {
		return err
	}
	b.mu.Lock()
	b.allow, b.deny = allow, deny
	b.mu.Unlock()
	return b.e.fails("networked")
}

// Network implements [registry.Networker].
func (b *Box) Network(context.Context) (allow, deny []string, err error) {
	if err := b.e.fails("ask"); err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.allow, b.deny, nil
}
