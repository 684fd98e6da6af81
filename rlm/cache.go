package rlm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wisbox/wisbox/internal/rundir"
)

// DefaultCacheBytes bounds a cache on disk.
const DefaultCacheBytes = 256 << 20

// Cache keeps the results of operations in a directory, one file each, named by
// the key. It may be used from many goroutines and processes at once; all Caches
// of a process on one directory are the same. A broken or missing file is a miss,
// never an error: an operation can always be run again.
type Cache struct {
	dir string
	max int64

	mu    sync.Mutex
	size  int64 // bytes of the files on disk: the last count, and the additions since
	added int64 // bytes added since the last count; other processes add too
}

// caches holds the caches that this process has opened, by directory.
var caches struct {
	mu     sync.Mutex
	opened map[string]*Cache
}

// OpenCache opens the cache in a directory. It creates the directory with access for its
// owner only, and refuses one of another user, whose values would be taken for results.
// maxBytes bounds the files on disk; 0 means [DefaultCacheBytes]. The first caller to open a
// directory sets its bound.
func OpenCache(dir string, maxBytes int64) (*Cache, error) {
	if maxBytes <= 0 {
		maxBytes = DefaultCacheBytes
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if err := rundir.Private(dir); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	caches.mu.Lock()
	defer caches.mu.Unlock()
	if c := caches.opened[dir]; c != nil {
		return c, nil
	}
	c := &Cache{dir: dir, max: maxBytes}
	c.trim()
	if caches.opened == nil {
		caches.opened = map[string]*Cache{}
	}
	caches.opened[dir] = c
	return c, nil
}

var keyPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{64}$`) })

// digestSize is the length of the SHA-256 before the value in its file, which detects
// damage.
const digestSize = sha256.Size

// Get returns the value of a key.
func (c *Cache) Get(key string) (string, bool) {
	if !keyPattern().MatchString(key) {
		return "", false
	}
	data, err := os.ReadFile(c.path(key))
	if err != nil || len(data) < digestSize {
		return "", false
	}
	value := data[digestSize:]
	if sha256.Sum256(value) != [digestSize]byte(data[:digestSize]) {
		_ = os.Remove(c.path(key))
		return "", false
	}
	now := time.Now()
	_ = os.Chtimes(c.path(key), now, now) // the files used last stay longest
	return text(value), true
}

var errKey = errors.New("rlm: a cache key is 64 hexadecimal digits")

// Put stores a value, byte for byte. It skips a value over an eighth of the cache, and every
// value while only the host's reserve is free on the file system.
func (c *Cache) Put(key, value string) error {
	if !keyPattern().MatchString(key) {
		return errKey
	}
	size := onDisk(int64(len(value) + digestSize))
	if size > c.max/maxShare || !c.hasRoom(size) {
		return nil
	}
	digest := sha256.Sum256([]byte(value))
	if err := c.write(key, digest[:], value); err != nil {
		return fmt.Errorf("store a result: %w", err)
	}
	c.grown(size)
	return nil
}

// write completes the file before it gives it its name.
func (c *Cache) write(key string, digest []byte, value string) (err error) {
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(digest)
	if err == nil {
		_, err = f.WriteString(value)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(f.Name(), c.path(key))
	}
	return err
}

func (c *Cache) path(key string) string { return filepath.Join(c.dir, key) }

const (
	maxShare   = 8    // part of the cache for one value
	countEvery = 16   // part of the cache that may be added before the next count
	block      = 4096 // bytes that the smallest file takes
)

// onDisk returns the bytes that a file takes on disk: very many small files fill it too.
func onDisk(size int64) int64 { return (size + block - 1) / block * block }

// hasRoom reports whether size bytes leave a twentieth of the file system, or 2 GiB,
// to the host.
func (c *Cache) hasRoom(size int64) bool {
	var fs syscall.Statfs_t
	if syscall.Statfs(c.dir, &fs) != nil {
		return false
	}
	reserve := min(fs.Blocks/20, uint64(2<<30/fs.Bsize))
	return fs.Bavail > reserve+uint64(size/int64(fs.Bsize))
}

func (c *Cache) grown(by int64) {
	c.mu.Lock()
	c.size += by
	c.added += by
	count := c.size > c.max || c.added > c.max/countEvery
	c.mu.Unlock()
	if count {
		c.trim()
	}
}

// trim counts the bytes of the files. If there are too many, it removes the least recently
// used files until a quarter of the room is free. It also removes files that a process left
// incomplete when it died.
func (c *Cache) trim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := c.files()
	c.size, c.added = 0, 0
	for _, f := range files {
		c.size += onDisk(f.Size())
	}
	if c.size <= c.max {
		return
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, f := range files {
		if c.size <= c.max*3/4 {
			return
		}
		if os.Remove(filepath.Join(c.dir, f.Name())) == nil {
			c.size -= onDisk(f.Size())
		}
	}
}

const abandoned = time.Hour

// files returns the files of values. It removes incomplete files after an hour.
func (c *Cache) files() []fs.FileInfo {
	entries, _ := os.ReadDir(c.dir)
	var out []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		switch {
		case err != nil || !info.Mode().IsRegular():
		case keyPattern().MatchString(entry.Name()):
			out = append(out, info)
		case strings.HasPrefix(entry.Name(), "new-") && time.Since(info.ModTime()) > abandoned:
			_ = os.Remove(filepath.Join(c.dir, entry.Name()))
		}
	}
	return out
}

// cacheKey returns the SHA-256 of the operation, its canonical arguments and every text that
// it reads. The length of each part precedes it, so that different lists of parts never have
// the same bytes.
func cacheKey(op string, args []byte, names []string, texts []*Text, version string) string {
	h := sha256.New()
	part := func(p []byte) { fmt.Fprintf(h, "%d:", len(p)); h.Write(p) }
	part([]byte("wisbox-rlm-1"))
	part([]byte(op))
	part([]byte(version))
	part(args)
	for i, t := range texts {
		sum := t.SHA256()
		part([]byte(names[i]))
		part(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}
