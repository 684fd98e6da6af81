package snapshot

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/sys"
)

// stamp distinguishes one state of a file from the next. The change time is the
// kernel's own: a program can't set it.
type stamp struct {
	ino   uint64
	size  int64
	mtime int64
	ctime int64
}

func (e *entry) stamp() stamp { return stamp{e.ino, e.size, e.mtime, e.ctime} }

func stampOf(st *unix.Stat_t) stamp {
	return stamp{st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}
}

// content is the content of a file with a certain stamp.
type content struct {
	stamp
	hash Hash
	list bool
	more *more // of the file, not of one of its names; may be nil
}

// statCache remembers the content of files that were read, so that they are not read again. It is
// only a cache: it may be lost or deleted at any time.
//
// It leaves out a file whose change time isn't before the moment of its reading, since that file
// could change again without a change of its times.
type statCache struct {
	// Of the last whole scan, sorted by inode: the files of a directory are mostly close
	// together, which makes lookups cheap.
	inodes []uint64
	known  []content

	mu    sync.Mutex
	fresh map[uint64]content // by inode, since then
	dirty bool
}

// find returns the content of a file with that stamp, if it is known, and its place
// in known, counted from 1; 0 means that it is in fresh.
func (c *statCache) find(s stamp) (found content, at int32, ok bool) {
	if i, ok := slices.BinarySearch(c.inodes, s.ino); ok && c.known[i].stamp == s {
		return c.known[i], int32(i) + 1, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok = c.fresh[s.ino]
	return found, 0, ok && found.stamp == s
}

func (c *statCache) add(found content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh[found.ino], c.dirty = found, true
}

// keep forgets everything except the files of a whole scan. The caller ensures that nothing looks
// anything up meanwhile, or since the scan.
func (c *statCache) keep(root *entry) {
	live := make([]bool, len(c.known))
	var fresh []content
	eachFile(root, func(e *entry) {
		switch {
		case e.cached > 0:
			live[e.cached-1] = true
		case e.sure && (e.size > 0 || e.more != nil):
			fresh = append(fresh, content{stamp: e.stamp(), hash: e.hash, list: e.list, more: e.more.plain()})
		}
	})
	known := c.known[:0:0]
	for i, is := range live {
		if is {
			known = append(known, c.known[i])
		}
	}
	c.dirty = c.dirty || len(known) != len(c.known)
	c.set(merge(known, fresh))
}

// merge merges fresh contents into those sorted by inode. If a file has two contents, because a
// program changed it between the scans of two of its names, the new one counts.
func merge(known, fresh []content) []content {
	slices.SortFunc(fresh, byInode)
	out := make([]content, 0, len(known)+len(fresh))
	for _, f := range fresh {
		for len(known) > 0 && known[0].ino < f.ino {
			out, known = append(out, known[0]), known[1:]
		}
		out = append(out, f)
	}
	return slices.CompactFunc(append(out, known...), func(a, b content) bool { return a.ino == b.ino })
}

func byInode(a, b content) int { return cmp.Compare(a.ino, b.ino) }

// set sets the contents, which must be sorted by inode without duplicates.
func (c *statCache) set(known []content) {
	c.inodes, c.known, c.fresh = make([]uint64, len(known)), known, map[uint64]content{}
	for i := range known {
		c.inodes[i] = known[i].ino
	}
}

func eachFile(e *entry, do func(*entry)) {
	if e.kind == file {
		do(e)
	}
	if e.dir == nil {
		return
	}
	for i := range e.dir.entries {
		eachFile(&e.dir.entries[i], do)
	}
}

// coarseNow returns the clock that file systems take their times from.
func coarseNow() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(sys.FileClock, &ts) != nil {
		return 0 // then nothing is cached
	}
	return ts.Nano()
}

const (
	cacheName   = "statcache"
	cacheMagic  = "wbxstat2"
	cacheRecord = 8 + 8 + 8 + 8 + 32 + 1 // and the hash of attributes, if there are some
)

func loadCache(root *os.Root) *statCache {
	c := &statCache{fresh: map[uint64]content{}}
	b, err := root.ReadFile(cacheName)
	if err != nil || len(b) < len(cacheMagic)+8 || string(b[:len(cacheMagic)]) != cacheMagic {
		return c
	}
	body, sum := b[len(cacheMagic):len(b)-8], blake3.Sum256(b[:len(b)-8])
	if string(b[len(b)-8:]) != string(sum[:8]) {
		return c
	}
	known := make([]content, 0, len(body)/cacheRecord)
	for len(body) > 0 {
		one, rest, ok := takeContent(body)
		if !ok {
			return c
		}
		known, body = append(known, one), rest
	}
	if !slices.IsSortedFunc(known, byInode) {
		return c
	}
	c.set(known)
	return c
}

// save writes the cache after keep, if it has changed.
func (c *statCache) save(root *os.Root) error {
	if !c.dirty {
		return nil
	}
	b := append(make([]byte, 0, 16+len(c.known)*cacheRecord), cacheMagic...)
	for i := range c.known {
		b = appendContent(b, &c.known[i])
	}
	sum := blake3.Sum256(b)
	err := replaceFile(root, cacheName, append(b, sum[:8]...), false)
	c.dirty = err != nil
	return err
}

// replaceFile writes a file in the store's directory and renames it into place.
func replaceFile(root *os.Root, name string, b []byte, sync bool) error {
	temp := tempPrefix + newID()
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(root.Remove(temp)))
	}
	if sync {
		return syncDir(root)
	}
	return nil
}

func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
