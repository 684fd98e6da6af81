package snapshot

import (
	"sync"

	"golang.org/x/sys/unix"
)

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

func (p *placed) note(fd int, e *entry) error {
	if e.mtime >= p.since {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files[st.Ino] = e
	return nil
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
	e.hash, e.list = f.hash, f.list
	return true
}
