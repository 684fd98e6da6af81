package snapshot

import (
	"context"
	"runtime"
	"sync"
)

// pool runs jobs that add more jobs, the newest first: a walk then goes down before it goes wide,
// so that few jobs wait and few files are open. The first error ends it.
type pool struct {
	ctx    context.Context
	mu     sync.Mutex
	wake   *sync.Cond
	jobs   []job
	active int
	err    error

	workers sync.WaitGroup
	started int
	most    int // workers; 0 before run
}

// job is a piece of work. drop frees its resources, whether it ran or not.
type job struct {
	do   func(buf []byte) error
	drop func()
}

var buffers = sync.Pool{New: func() any { return new([chunkSize]byte) }}

func newPool(ctx context.Context) *pool {
	p := &pool{ctx: ctx}
	p.wake = sync.NewCond(&p.mu)
	return p
}

func (p *pool) push(j job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.jobs = append(p.jobs, j)
	p.wake.Signal()
	p.help()
}

// help starts another worker if there are more jobs than the one that the caller takes next.
func (p *pool) help() {
	for p.started < min(p.most, p.active+len(p.jobs)) && len(p.jobs) > 1 {
		p.started++
		p.workers.Go(p.work)
	}
}

// run returns when no job is left, or the first error. A walk of few directories needs no more than its caller.
func (p *pool) run() error {
	p.mu.Lock()
	p.most, p.started = min(8, 2*runtime.GOMAXPROCS(0)), 1 // more than run at once: some wait for the disk
	p.help()
	p.mu.Unlock()
	p.work()
	p.workers.Wait()
	for _, j := range p.jobs {
		j.drop()
	}
	return p.err
}

func (p *pool) work() {
	buf := buffers.Get().(*[chunkSize]byte)
	defer buffers.Put(buf)
	for {
		j, ok := p.take()
		if !ok {
			return
		}
		err := p.ctx.Err()
		if err == nil {
			err = j.do(buf[:])
		}
		j.drop()
		p.done(err)
	}
}

func (p *pool) take() (job, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.jobs) == 0 && p.active > 0 && p.err == nil {
		p.wake.Wait()
	}
	if len(p.jobs) == 0 || p.err != nil {
		return job{}, false
	}
	j := p.jobs[len(p.jobs)-1]
	p.jobs = p.jobs[:len(p.jobs)-1]
	p.active++
	return j, true
}

func (p *pool) done(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if p.err == nil {
		p.err = err
	}
	if p.active == 0 || p.err != nil {
		p.wake.Broadcast()
	}
}
