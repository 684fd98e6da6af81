package wisbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/wisbox/wisbox/overlay"
)

// PoolOptions keep started containers ready, so that opening a session and
// running its first program costs no container start.
type PoolOptions struct {
	// Min containers are kept ready. 0 is no pool.
	Min int
	// Max bounds the containers that are ready or being made, default Min. When
	// sessions are opened faster than the pool fills, it grows to Max; after a
	// quiet minute it is back at Min.
	Max int
	// Session is what the containers are made for. A session takes one when its
	// image, limits, environment, Strict, Isolation, Seccomp and UserNS are the same and it isn't kept.
	Session SessionOptions
}

const (
	poolQuiet    = time.Minute      // without a miss, the pool shrinks
	poolRetryMin = time.Second      // after a failure, doubled each time
	poolRetryMax = 30 * time.Second // at most
	poolMakers   = 4                // containers made at once
)

// pool makes sessions' directories and containers in advance. A pooled one is an
// ephemeral session without a client: a crash leaves it to the next sweep.
type pool struct {
	m        *Manager
	opts     PoolOptions
	template SessionOptions
	wake     chan struct{}

	mu     sync.Mutex
	ready  []*pooled
	making int
	target int
	missed time.Time // when a session last found the pool empty
	retry  time.Duration
	taken  int64 // containers that sessions got from the pool
	misses int64 // and that they had to make
	closed bool
}

// pooled is a directory and a running sandbox for it.
type pooled struct {
	dir *overlay.Dir
	box *box
}

func newPool(m *Manager, opts PoolOptions) (*pool, error) {
	template, err := opts.Session.withDefaults()
	if err != nil {
		return nil, err
	}
	template.Name, template.Kept, template.Mounts, template.Secrets = "", false, nil, nil
	opts.Max = max(opts.Max, opts.Min)
	p := &pool{m: m, opts: opts, template: template, target: opts.Min, wake: make(chan struct{}, 1)}
	m.tasks.Go(p.fill)
	p.nudge()
	return p, nil
}

// take gives a ready container for these options, or nil.
func (p *pool) take(o SessionOptions) *pooled {
	if p == nil || !p.fits(o) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.nudge()
	if len(p.ready) == 0 {
		p.missed = time.Now()
		p.misses++
		p.target = min(p.target+1, p.opts.Max)
		return nil
	}
	p.taken++
	got := p.ready[0]
	p.ready = p.ready[1:]
	return got
}

func (p *pool) stats() PoolStats {
	if p == nil {
		return PoolStats{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return PoolStats{Ready: len(p.ready), Making: p.making, Taken: p.taken, Missed: p.misses}
}

func (p *pool) fits(o SessionOptions) bool {
	t := p.template
	return !o.Kept && o.Name == "" && o.Image == t.Image && o.Limits == t.Limits && o.Strict == t.Strict && o.Isolation == t.Isolation && o.Seccomp == t.Seccomp && o.UserNS == t.UserNS && maps.Equal(o.Env, t.Env)
}

func (p *pool) nudge() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// fill keeps the pool at its target until the manager closes.
func (p *pool) fill() {
	var makers sync.WaitGroup
	tick := time.NewTicker(poolQuiet)
	defer tick.Stop()
	for {
		for p.begin() {
			makers.Go(p.makeOne)
		}
		select {
		case <-p.wake:
		case <-tick.C:
			p.shrink()
		case <-p.m.ctx.Done():
			makers.Wait()
			p.drain()
			return
		}
	}
}

// begin claims the making of one container.
func (p *pool) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.making >= poolMakers || len(p.ready)+p.making >= p.target {
		return false
	}
	p.making++
	return true
}

func (p *pool) makeOne() {
	made, err := p.prepare(p.m.ctx)
	p.mu.Lock()
	p.making--
	wait := time.Duration(0)
	if err != nil {
		p.retry = min(max(2*p.retry, poolRetryMin), poolRetryMax)
		wait = p.retry
	} else {
		p.retry = 0
		p.ready = append(p.ready, made)
	}
	p.mu.Unlock()
	if err != nil {
		p.m.log.Warn("fill the pool", "error", err, "again_in", wait)
	}
	time.AfterFunc(wait, p.nudge)
}

// prepare makes a directory and a running container for it.
func (p *pool) prepare(ctx context.Context) (*pooled, error) {
	settings, err := json.Marshal(p.template)
	if err != nil {
		return nil, err
	}
	dir, err := p.m.createDir(ctx, p.template, settings)
	if err != nil {
		return nil, err
	}
	l := &local{m: p.m, dir: dir, opts: p.template}
	b := newBox(l.makeSandbox, p.m.log)
	if err := errors.Join(dir.SetState(overlay.StateReady), warmUp(ctx, b)); err != nil {
		p.m.discard(&pooled{dir, b})
		return nil, err
	}
	return &pooled{dir, b}, nil
}

// warmUp starts the sandbox and with it the agent.
func warmUp(ctx context.Context, b *box) error {
	_, err := b.get(ctx)
	return err
}

// shrink brings the pool back to Min after a quiet time.
func (p *pool) shrink() {
	p.mu.Lock()
	var surplus []*pooled
	if time.Since(p.missed) >= poolQuiet {
		p.target = p.opts.Min
		if n := len(p.ready) - p.target; n > 0 {
			surplus, p.ready = p.ready[:n], p.ready[n:]
		}
	}
	p.mu.Unlock()
	for _, item := range surplus {
		p.m.discard(item)
	}
}

func (p *pool) drain() {
	p.mu.Lock()
	left := p.ready
	p.ready, p.closed = nil, true
	p.mu.Unlock()
	for _, item := range left {
		p.m.discard(item)
	}
}

// discard removes a pooled container and its directory.
func (m *Manager) discard(item *pooled) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.ctx), dropGrace)
	defer cancel()
	var err error
	if item.box != nil {
		err = item.box.close(ctx)
	}
	err = errors.Join(err, item.dir.Close(), m.store.RemoveWith(ctx, item.dir.ID(), m.removeSandbox))
	if err != nil {
		m.log.Warn("remove a pooled session", "session", item.dir.ID(), "error", err)
	}
}
