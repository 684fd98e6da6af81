// Package pool keeps values ready that are slow to make, such as containers: a minimum number, and
// more while they are taken faster than they are made.
package pool

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	quiet    = time.Minute      // after this time without a miss, the pool shrinks
	retryMin = time.Second      // after a failure; doubled each time
	retryMax = 30 * time.Second // at most
	makers   = 4                // concurrent
	discards = 8                // concurrent, at the end

	// breath is the pause after a value was taken, if more are ready: making one would compete for
	// processors with the taker's urgent work.
	breath = 50 * time.Millisecond
)

// Options are the options of a Pool. Make and Discard are required; they may be called from several
// goroutines at once.
type Options[T any] struct {
	// Min is the number of values to keep ready.
	Min int
	// Max bounds the values that are ready or being made; default Min. When values are taken faster
	// than the pool fills, it grows to Max; after a quiet minute it shrinks to Min.
	Max     int
	Make    func(context.Context) (T, error)
	Discard func(T)
	Log     *slog.Logger // default none
}

// Stats are the counters of a Pool.
type Stats struct {
	Ready, Making int   // at present
	Taken, Missed int64 // calls of Take with and without a value
}

// Pool is a pool of T. Its methods may be called from many goroutines at once; the
// nil Pool is empty.
type Pool[T any] struct {
	opts Options[T]
	wake chan struct{}
	end  context.CancelFunc
	done chan struct{} // closed when the pool is empty for good

	mu     sync.Mutex
	ready  []T
	making int
	target int
	missed time.Time // the last call of Take that found the pool empty
	retry  time.Duration
	again  time.Time // make nothing before, because the last attempt failed
	rest   time.Time // make nothing before, while some are ready
	stats  Stats
	closed bool
}

// New returns a pool that fills until ctx ends or Close is called.
func New[T any](ctx context.Context, opts *Options[T]) *Pool[T] {
	p := &Pool[T]{opts: *opts, target: opts.Min, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.opts.Max = max(p.opts.Max, p.opts.Min)
	if p.opts.Log == nil {
		p.opts.Log = slog.New(slog.DiscardHandler)
	}
	ctx, p.end = context.WithCancel(ctx)
	go p.fill(ctx)
	p.nudge()
	return p
}

// Close discards the ready values and waits for that.
func (p *Pool[T]) Close() {
	if p != nil {
		p.end()
		<-p.done
	}
}

// Take returns a ready value, if there is one.
func (p *Pool[T]) Take() (item T, ok bool) {
	if p == nil {
		return item, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.nudge()
	if len(p.ready) == 0 {
		p.missed = time.Now()
		p.stats.Missed++
		p.target = min(p.target+1, p.opts.Max)
		return item, false
	}
	p.stats.Taken++
	item, p.ready = p.ready[0], p.ready[1:]
	if now := time.Now(); now.After(p.rest) { // don't postpone again and again
		p.rest = now.Add(breath)
		time.AfterFunc(breath, p.nudge)
	}
	return item, true
}

// Drop removes the ready values for which which returns true and returns them; the caller must
// discard them. The pool makes others instead.
func (p *Pool[T]) Drop(which func(T) bool) (out []T) {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.nudge()
	p.ready = slices.DeleteFunc(p.ready, func(item T) bool {
		if which(item) {
			out = append(out, item)
			return true
		}
		return false
	})
	return out
}

// Stats may be called at any time.
func (p *Pool[T]) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Ready, s.Making = len(p.ready), p.making
	return s
}

func (p *Pool[T]) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fill keeps the pool at its target until ctx ends.
func (p *Pool[T]) fill(ctx context.Context) {
	defer close(p.done)
	var working sync.WaitGroup
	tick := time.NewTicker(quiet)
	defer tick.Stop()
	for {
		for p.begin() {
			working.Go(func() { p.makeOne(ctx) })
		}
		select {
		case <-p.wake:
		case <-tick.C:
			p.shrink()
		case <-ctx.Done():
			working.Wait()
			p.drain()
			return
		}
	}
}

// begin reserves the making of a value.
func (p *Pool[T]) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	rests := len(p.ready) > 0 && now.Before(p.rest)
	if p.closed || rests || p.making >= makers || now.Before(p.again) || len(p.ready)+p.making >= p.target {
		return false
	}
	p.making++
	return true
}

func (p *Pool[T]) makeOne(ctx context.Context) {
	made, err := p.opts.Make(ctx)
	p.mu.Lock()
	p.making--
	wait := time.Duration(0)
	if err != nil {
		p.retry = min(max(2*p.retry, retryMin), retryMax)
		wait = p.retry
		p.again = time.Now().Add(wait)
	} else {
		p.retry, p.again = 0, time.Time{}
		p.ready = append(p.ready, made)
	}
	p.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		p.opts.Log.Warn("fill the pool", "error", err, "again_in", wait)
	}
	time.AfterFunc(wait, p.nudge)
}

// shrink reduces the pool to Min after a quiet time.
func (p *Pool[T]) shrink() {
	p.mu.Lock()
	var surplus []T
	if time.Since(p.missed) >= quiet {
		p.target = p.opts.Min
		if n := len(p.ready) - p.target; n > 0 {
			surplus, p.ready = p.ready[:n], p.ready[n:]
		}
	}
	p.mu.Unlock()
	for _, item := range surplus {
		p.opts.Discard(item)
	}
}

func (p *Pool[T]) drain() {
	p.mu.Lock()
	left := p.ready
	p.ready, p.closed = nil, true
	p.mu.Unlock()
	var all errgroup.Group
	all.SetLimit(discards)
	for _, item := range left {
		all.Go(func() error { p.opts.Discard(item); return nil })
	}
	_ = all.Wait() // it never fails
}
