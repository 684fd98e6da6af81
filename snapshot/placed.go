package snapshot

import "sync"

// placed are the files that a restore has written itself: the look that follows
// need not read them again. A file that is still the same inode, as long and of
// the same old time is what was written: a program that changes it moves its
// time, unless it takes the trouble to set it back, and then it is its own time
// that lies.
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

// holds gives an entry the content that was placed, if it is that file.
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
	e.hash, e.list, e.sure = f.hash, f.list, true
	return true
}
