package snapshot

import (
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/beneath"
	"github.com/wisbox/wisbox/internal/sys"
)

const (
	anchorPath = 2_000  // characters after which a directory is held open, to reach those below it
	maxDepth   = 20_000 // levels of directories
)

// place is a directory of a tree, identified by the names that lead to it. Each use opens it again,
// without following a link, so that a deep tree takes few descriptors. One directory every
// anchorPath characters stays open for those below it.
type place struct {
	up    *place
	name  string
	depth int
	chars int // of the path from the anchor
	fd    atomic.Int64
	refs  atomic.Int32
}

// newPlace returns the top of a tree. The caller keeps fd open.
func newPlace(fd int) *place {
	p := &place{}
	p.fd.Store(int64(fd))
	p.refs.Store(2) // never closed
	return p
}

// below returns a directory in p. The caller calls release.
func (p *place) below(name string) *place {
	p.refs.Add(1)
	c := &place{up: p, name: name, depth: p.depth + 1, chars: p.chars + len(name) + 1}
	c.fd.Store(-1)
	c.refs.Store(1)
	if p.fd.Load() >= 0 {
		c.chars = len(name) + 1
	}
	return c
}

// child is like below, but needs no release. It is for the path, and for a directory that a short
// path leads to.
func (p *place) child(name string) *place {
	c := &place{up: p, name: name, depth: p.depth + 1}
	c.fd.Store(-1)
	return c
}

func (p *place) hold() *place {
	p.refs.Add(1)
	return p
}

func (p *place) release() {
	for ; p != nil && p.refs.Add(-1) == 0; p = p.up {
		if fd := p.fd.Load(); fd >= 0 {
			_ = unix.Close(int(fd))
		}
	}
}

// open opens the directory with flags. If its path is long, it becomes an anchor.
func (p *place) open(flags int) (int, error) {
	names := []string(nil)
	at := p
	for ; at.fd.Load() < 0; at = at.up {
		names = append(names, at.name)
	}
	fd, err := beneath.OpenBelow(int(at.fd.Load()), joinUp(names), flags|unix.O_DIRECTORY)
	if err == nil && p.chars > anchorPath && p.fd.Load() < 0 {
		p.anchor(fd)
	}
	return fd, err
}

func (p *place) anchor(fd int) {
	own, err := beneath.OpenBelow(fd, "", sys.Place|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	if !p.fd.CompareAndSwap(-1, int64(own)) {
		_ = unix.Close(own)
	}
}

// joinUp writes names, the last of which comes first, as a path.
func joinUp(names []string) string {
	var b strings.Builder
	for i, name := range slices.Backward(names) {
		b.WriteString(name)
		if i > 0 {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// clipped returns the path of the entry name of p as an agent may see it: printable and short.
func (p *place) clipped(name string) string {
	const most = maxShown / 2 // characters of its beginning, and of its end
	names := []string{}
	if name != "" {
		names = append(names, name)
	}
	for at := p; at != nil && at.up != nil; at = at.up {
		names = append(names, at.name)
	}
	end, chars := 0, 0
	for ; end < len(names) && chars < most; end++ {
		chars += len(names[end]) + 1
	}
	start, chars := len(names), 0
	for ; start > end && chars < most; start-- {
		chars += len(names[start-1]) + 1
	}
	if start == end {
		return clipPath(shown(joinUp(names)))
	}
	return clipPath(shown(joinUp(names[start:])) + "/.../" + shown(joinUp(names[:end])))
}

// path returns the path of the entry name of p from the top.
func (p *place) path(name string) string {
	names := []string{}
	if name != "" {
		names = append(names, name)
	}
	for at := p; at != nil && at.up != nil; at = at.up {
		names = append(names, at.name)
	}
	return joinUp(names)
}
