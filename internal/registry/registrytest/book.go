package registrytest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/wisbox/wisbox/internal/registry"
	"github.com/wisbox/wisbox/tool"
)

// Book is an in-memory [registry.Book], and the engine of its sandboxes, for several registries.
// The zero value works.
type Book struct {
	Engine

	mu      sync.Mutex
	entries map[string]registry.Entry
	events  []event // all events so far
	changed chan struct{}
	cut     int // number of interrupted watches
	ends    int // number of calls of End
	away    error
	deaf    bool
}

type event struct {
	registry.Entry
	gone bool
}

var _ registry.Book = (*Book)(nil)

// tell appends an event. The caller must hold mu.
func (b *Book) tell(e registry.Entry, gone bool) {
	if b.entries == nil {
		b.entries = map[string]registry.Entry{}
	}
	if b.entries[e.ID] = e; gone {
		delete(b.entries, e.ID)
	}
	b.events = append(b.events, event{e, gone})
	b.wake()
}

func (b *Book) wake() {
	if b.changed != nil {
		close(b.changed)
	}
	b.changed = make(chan struct{})
}

// Away makes the book fail with err, or work again if err is nil, and interrupts all followers.
func (b *Book) Away(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = err
	b.cut++
	b.wake()
}

// Deaf stops the delivery of changes if deaf is true, and resumes it otherwise.
func (b *Book) Deaf(deaf bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deaf = deaf
	b.wake()
}

// Put makes a change that no registry makes.
func (b *Book) Put(e registry.Entry, gone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell(e, gone)
}

// Records returns all entries by ID.
func (b *Book) Records() map[string]registry.Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.entries)
}

// Ends returns the number of calls of End.
func (b *Book) Ends() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ends
}

// Create implements [registry.Engine]. It puts the record into the book first.
func (b *Book) Create(ctx context.Context, r registry.Record) (registry.Box, error) {
	b.mu.Lock()
	if b.away != nil {
		b.mu.Unlock()
		return nil, b.away
	}
	if _, ok := b.entries[r.ID]; ok {
		b.mu.Unlock()
		return nil, tool.Errorf(tool.Exists, "it is there already")
	}
	b.tell(registry.Entry{Record: r}, false)
	b.mu.Unlock()
	box, err := b.Engine.Create(ctx, r)
	if err != nil {
		b.Put(registry.Entry{Record: r}, true)
	}
	return box, err
}

// Follow implements [registry.Book].
func (b *Book) Follow(ctx context.Context, f *registry.Follower) {
	for ctx.Err() == nil {
		b.mu.Lock()
		away, at, cut, changed := b.away, len(b.events), b.cut, b.channel()
		all := slices.Collect(maps.Values(b.entries))
		b.mu.Unlock()
		if away != nil {
			f.Lost(away)
			wait(ctx, changed)
			continue
		}
		f.All(all)
		for ctx.Err() == nil {
			b.mu.Lock()
			next, now, deaf, changed := b.events[at:], b.cut, b.deaf, b.channel()
			b.mu.Unlock()
			if now != cut {
				break
			}
			if deaf {
				wait(ctx, changed)
				continue
			}
			for _, e := range next {
				f.One(e.Entry, e.gone)
			}
			if at += len(next); len(next) == 0 {
				wait(ctx, changed)
			}
		}
	}
}

// channel requires that the caller hold mu.
func (b *Book) channel() chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

func wait(ctx context.Context, changed chan struct{}) {
	select {
	case <-changed:
	case <-ctx.Done():
	}
}

var errNone = tool.Errorf(tool.NotFound, "the sandbox was not found")

// Get implements [registry.Book].
func (b *Book) Get(_ context.Context, id string) (registry.Entry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.entries[id]
	if !ok {
		return e, errors.Join(b.away, errNone)
	}
	return e, b.away
}

// Owned implements [registry.Book].
func (b *Book) Owned(_ context.Context, owner string) (all []registry.Entry, _ error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if e.Owner == owner {
			all = append(all, e)
		}
	}
	return all, b.away
}

// Change implements [registry.Book].
func (b *Book) Change(ctx context.Context, id string, edit func(*registry.Record) bool) (registry.Record, error) {
	e, err := b.Get(ctx, id)
	if err != nil {
		return registry.Record{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e = b.entries[id]; edit(&e.Record) {
		e.Version++
		b.tell(e, false)
	}
	return b.entries[id].Record, nil
}

// End implements [registry.Book].
func (b *Book) End(_ context.Context, id string, may func(registry.Record) bool) (bool, registry.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ends++
	e, ok := b.entries[id]
	if b.away != nil {
		return false, e.Record, b.away
	}
	if !ok || may != nil && !may(e.Record) {
		return !ok, e.Record, nil
	}
	b.tell(e, true)
	return true, e.Record, b.Remove(context.Background(), id)
}
