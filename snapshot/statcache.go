package snapshot

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// stamp tells one state of a file from the next. The change time is the
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

// content is what a file with a certain stamp holds.
type content struct {
	stamp
	hash Hash
	list bool
}

// statCache remembers the content of files that were read, so that they are not
// read again. It is only a cache: it may be lost or thrown away at any time.
//
// A file whose change time is not before the moment of its reading is left out:
// it could change once more without its times telling.
type statCache struct {
	mu    sync.Mutex
	known map[uint64]content // by inode
	dirty bool
}

func (c *statCache) lookup(s stamp) (content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.known[s.ino]
	return found, ok && found.stamp == s
}

func (c *statCache) add(found content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[found.ino], c.dirty = found, true
}

// keep forgets all but what the tree of a whole look holds.
func (c *statCache) keep(root *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	live := make(map[uint64]content, len(c.known))
	eachFile(root, func(e *entry) {
		if found, ok := c.known[e.ino]; ok && found.stamp == e.stamp() {
			live[e.ino] = found
		}
	})
	c.dirty = c.dirty || len(live) != len(c.known)
	c.known = live
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

// coarseNow is the clock that file systems take their times from.
func coarseNow() int64 {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil {
		return 0 // nothing is cached then
	}
	return ts.Nano()
}

const (
	cacheName   = "statcache"
	cacheMagic  = "wbxstat1"
	cacheRecord = 8 + 8 + 8 + 8 + 32 + 1
)

func loadCache(root *os.Root) *statCache {
	c := &statCache{known: map[uint64]content{}}
	b, err := root.ReadFile(cacheName)
	if err != nil || len(b) < len(cacheMagic)+8 || string(b[:len(cacheMagic)]) != cacheMagic {
		return c
	}
	body, sum := b[len(cacheMagic):len(b)-8], blake3.Sum256(b[:len(b)-8])
	if string(b[len(b)-8:]) != string(sum[:8]) || len(body)%cacheRecord != 0 {
		return c
	}
	c.known = make(map[uint64]content, len(body)/cacheRecord)
	for ; len(body) > 0; body = body[cacheRecord:] {
		le := binary.LittleEndian
		s := stamp{le.Uint64(body), int64(le.Uint64(body[8:])), int64(le.Uint64(body[16:])), int64(le.Uint64(body[24:]))}
		c.known[s.ino] = content{stamp: s, hash: Hash(body[32:64]), list: body[64] == 1}
	}
	return c
}

// save writes the cache if it has changed.
func (c *statCache) save(root *os.Root) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dirty {
		return nil
	}
	b := append(make([]byte, 0, 16+len(c.known)*cacheRecord), cacheMagic...)
	for _, k := range c.known {
		for _, v := range []uint64{k.ino, uint64(k.size), uint64(k.mtime), uint64(k.ctime)} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		list := byte(0)
		if k.list {
			list = 1
		}
		b = append(append(b, k.hash[:]...), list)
	}
	sum := blake3.Sum256(b)
	err := replaceFile(root, cacheName, append(b, sum[:8]...), false)
	c.dirty = err != nil
	return err
}

// replaceFile puts a file into the store's directory by rename.
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
