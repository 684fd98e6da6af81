package snapshot

import "sync"

// placed records the files that a restore has written, which the next scan need not read again. A
// file with the same inode, size and old modification time is unchanged: a program that changes it
// also changes its time, unless it sets the time back on purpose.
type placed struct {
	since int64 // a file that is younger may change without its time moving

	mu    sync.Mutex
	files map[uint64]*entry // by inode
}

func newPlaced() *placed { return &placed{since: coarseNow(), files: map[uint64]*entry{}} }

func (p *placed) note(ino uint64, e *entry) {
	if e.mtime >= p.since {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[ino] = e
}

// holds reports whether an entry is the file that was placed, and if so sets its content.
func (p *placed) holds(e *entry) bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.files[e.ino]
	if !ok || f.size != e.size || f.mtime != e.mtime {
		return false
	}
	e.hash, e.list, e.sure, e.more = f.hash, f.list, true, f.more.plain()
	return true
}
