package shelltool

import (
	"context"
	"time"
)

// holder is a reader for which the program waits, see [AttachOptions.Hold].
type holder struct {
	at       int64 // the first byte that it has not taken
	patience time.Duration
	moved    chan struct{} // closed when at changes or the reader leaves; nil if nobody waits
	tooSlow  bool          // until it has caught up
}

// hold adds a reader. The caller calls at with each new offset, and leave at the end.
func (p *process) hold(from int64, patience time.Duration) (at func(int64), leave func()) {
	h := &holder{at: from, patience: patience}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.holders == nil {
		p.holders = map[*holder]bool{}
	}
	p.holders[h] = true
	at = func(offset int64) {
		_, end := p.log.bounds()
		p.mu.Lock()
		defer p.mu.Unlock()
		h.at, h.tooSlow = offset, h.tooSlow && offset < end
		h.wake()
	}
	return at, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.holders, h)
		h.wake()
	}
}

// arrived removes the place that was kept for the first reader.
func (p *process) arrived() {
	p.mu.Lock()
	leave := p.awaited
	p.awaited = nil
	p.mu.Unlock()
	if leave != nil {
		leave()
	}
}

func (h *holder) wake() {
	if h.moved != nil {
		close(h.moved)
		h.moved = nil
	}
}

// awaitHolders waits until n more bytes don't push out bytes that a holder still needs.
func (p *process) awaitHolders(n int64) {
	var over context.Context
	for {
		_, end := p.log.bounds()
		h, moved := p.behind(end + n - p.log.size/2) // the rest is for what the other stream writes meanwhile
		if h == nil {
			return
		}
		if over == nil {
			var stop context.CancelFunc
			over, stop = context.WithTimeout(context.Background(), h.patience)
			defer stop()
		}
		select {
		case <-moved:
		case <-over.Done():
			p.mu.Lock()
			h.tooSlow = true
			p.mu.Unlock()
		}
	}
}

// behind returns a holder that has not read up to an offset.
func (p *process) behind(offset int64) (*holder, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for h := range p.holders {
		if h.at >= offset || h.tooSlow {
			continue
		}
		if h.moved == nil {
			h.moved = make(chan struct{})
		}
		return h, h.moved
	}
	return nil, nil
}
