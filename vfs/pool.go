package vfs

import (
	"context"
	"runtime"
	"sync"

	"github.com/wisbox/wisbox/internal/budget"
)

const (
	maxWorkers    = 8
	pendingMemory = 24 << 20 // bytes of waiting jobs
)

// pool runs jobs that add more jobs, on a few goroutines. It runs the newest first, so that few
// jobs wait.
type pool struct {
	b       *budget.Budget
	mu      sync.Mutex
	more    *sync.Cond
	jobs    []job
	memory  int
	running int
	stopped bool
}

type job struct {
	do   func(worker int)
	drop func() // called instead of do when the pool has been stopped
	cost int    // bytes of memory that it holds
}

// newPool makes a pool whose waiting jobs are charged to b.
func newPool(b *budget.Budget) *pool {
	p := &pool{b: b}
	p.more = sync.NewCond(&p.mu)
	return p
}

func workers() int { return min(runtime.GOMAXPROCS(0), maxWorkers) }

// push adds a job. If the waiting jobs take too much memory, it drops the job and returns false.
func (p *pool) push(j job) bool {
	p.mu.Lock()
	full := p.memory+j.cost > pendingMemory
	if !full {
		_ = p.b.Hold(j.cost) // beyond the budget the visits fail, and the walk ends
		p.memory += j.cost
		p.jobs = append(p.jobs, j)
		p.more.Signal()
	}
	p.mu.Unlock()
	if full {
		j.drop()
	}
	return !full
}

// run runs jobs until none is left, or until ctx ends, and drops the rest.
func (p *pool) run(ctx context.Context) {
	defer context.AfterFunc(ctx, p.stop)()
	var wg sync.WaitGroup
	for i := range workers() {
		wg.Go(func() { p.work(i) })
	}
	wg.Wait()
	for _, j := range p.jobs {
		j.drop()
	}
	p.jobs = nil
}

func (p *pool) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = true
	p.more.Broadcast()
}

func (p *pool) work(worker int) {
	for {
		j, ok := p.next()
		if !ok {
			return
		}
		j.do(worker)
		p.done()
	}
}

func (p *pool) next() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.jobs) == 0 && p.running > 0 && !p.stopped {
		p.more.Wait()
	}
	if len(p.jobs) == 0 || p.stopped {
		return job{}, false
	}
	last := len(p.jobs) - 1
	j := p.jobs[last]
	p.jobs[last] = job{}
	p.jobs = p.jobs[:last]
	p.memory -= j.cost
	p.b.Release(j.cost)
	p.running++
	return j, true
}

func (p *pool) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	if p.running == 0 {
		p.more.Broadcast()
	}
}
