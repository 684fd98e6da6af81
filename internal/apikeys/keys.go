// Package apikeys knows who may use a server: API keys, which are kept as hashes in a file
// or given for one run. A key stands for an owner; owners never see each other's
// sandboxes.
package apikeys

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"

	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/tool"
)

// Key is an API key without its text.
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Owner is whose sandboxes the key opens. A key that replaces another has its owner.
	Owner   string    `json:"owner"`
	Hash    string    `json:"hash,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	// Sandboxes is how many the owner may have at once; 0 is the server's default.
	Sandboxes int `json:"sandboxes,omitempty"`
	// Creations is how many the owner may make in a minute; 0 is the server's default.
	Creations int `json:"creations_per_minute,omitempty"`
	// CPUs, Memory and Disk bound what the owner's sandboxes may take together, Disk with
	// the owner's snapshots; Memory and Disk are bytes, and 0 is no bound.
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory_bytes,omitempty"`
	Disk   int64   `json:"disk_bytes,omitempty"`
	// Metrics lets the key read the server's own metrics.
	Metrics bool `json:"metrics,omitempty"`
}

const (
	prefix    = "e2b_" // clients of E2B check for it, and for hexadecimal digits behind it
	keyBytes  = 20
	idBytes   = 4
	minText   = 22 // characters of a key that was given
	maxKeys   = 10_000
	lockTime  = 10 * time.Second
	lockEvery = 50 * time.Millisecond
)

// Store is the file of the keys. Many processes may change it; a server notices that.
// Its methods may be called from many goroutines at once.
type Store struct {
	path  string
	given map[string]Key // by hash, for this process alone

	mu    sync.Mutex
	seen  os.FileInfo
	known map[string]Key // of the file, by hash
}

// Open names the file, which is made by the first key. given are texts of keys for this
// process alone; each is an owner of its own.
func Open(path string, given ...string) (*Store, error) {
	s := &Store{path: path, given: map[string]Key{}}
	for _, text := range given {
		if len(text) < minText {
			return nil, tool.Errorf(tool.Invalid, "a key has %d characters; it needs at least %d, as e2b_ and 40 hexadecimal digits", len(text), minText)
		}
		hash := hashOf(text)
		s.given[hash] = Key{ID: "env_" + hash[:8], Owner: "env_" + hash[:16]}
	}
	if _, err := s.file(); err != nil {
		return nil, err
	}
	return s, nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Empty reports whether there is no key at all.
func (s *Store) Empty() bool {
	all, err := s.file()
	return err == nil && len(all)+len(s.given) == 0
}

// Check finds the key of a text, with its hash: how long that takes says nothing of the
// keys that there are.
func (s *Store) Check(text string) (Key, bool) {
	hash := hashOf(text)
	if k, ok := s.given[hash]; ok {
		return k, true
	}
	all, err := s.file()
	k, ok := all[hash]
	if err != nil || !ok || k.expired() {
		return Key{}, false
	}
	return k, true
}

func (k Key) expired() bool { return !k.Expires.IsZero() && !time.Now().Before(k.Expires) }

// file is what stands in the file now.
func (s *Store) file() (map[string]Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.seen, s.known = nil, nil
		return nil, nil
	case err != nil:
		return nil, err
	case s.seen != nil && os.SameFile(s.seen, info) && s.seen.ModTime().Equal(info.ModTime()) && s.seen.Size() == info.Size():
		return s.known, nil
	}
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	s.seen, s.known = info, make(map[string]Key, len(all))
	for _, k := range all {
		s.known[k.Hash] = k
	}
	return s.known, nil
}

func (s *Store) read() (all []Key, err error) {
	if err = jsonfile.Read(s.path, &all); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// List are the keys of the file, the oldest first, without their hashes.
func (s *Store) List() ([]Key, error) {
	all, err := s.read()
	for i := range all {
		all[i].Hash = ""
	}
	slices.SortStableFunc(all, func(a, b Key) int { return a.Created.Compare(b.Created) })
	return all, err
}

// Create adds a key and returns its text, which is kept nowhere. replaces is the id of a
// key whose owner the new one gets, "" for an owner of its own; that key stays until it
// is revoked.
func (s *Store) Create(ctx context.Context, k Key, replaces string) (text string, _ Key, err error) {
	text = prefix + random(keyBytes)
	k.ID, k.Hash, k.Created = "key_"+random(idBytes), hashOf(text), time.Now().UTC().Truncate(time.Second)
	k.Owner = k.ID
	err = s.change(ctx, func(all []Key) ([]Key, error) {
		if len(all) >= maxKeys {
			return nil, tool.Errorf(tool.Limit, "there are %d keys; revoke some first", len(all))
		}
		if replaces != "" {
			i := slices.IndexFunc(all, func(old Key) bool { return old.ID == replaces })
			if i < 0 {
				return nil, noKey(replaces)
			}
			old := all[i]
			k.Owner, k.Name = old.Owner, cmp.Or(k.Name, old.Name)
			k.Sandboxes, k.Creations = cmp.Or(k.Sandboxes, old.Sandboxes), cmp.Or(k.Creations, old.Creations)
			k.CPUs, k.Memory, k.Disk = cmp.Or(k.CPUs, old.CPUs), cmp.Or(k.Memory, old.Memory), cmp.Or(k.Disk, old.Disk)
		}
		return append(all, k), nil
	})
	k.Hash = ""
	return text, k, err
}

// Revoke removes a key. Its owner's sandboxes stay until their time is over.
func (s *Store) Revoke(ctx context.Context, id string) error {
	return s.change(ctx, func(all []Key) ([]Key, error) {
		left := slices.DeleteFunc(slices.Clone(all), func(k Key) bool { return k.ID == id })
		if len(left) == len(all) {
			return nil, noKey(id)
		}
		return left, nil
	})
}

func noKey(id string) error {
	return tool.Errorf(tool.NotFound, "there is no key %q; wisbox serve key list shows the keys", id)
}

// change replaces the file, one process at a time.
func (s *Store) change(ctx context.Context, edit func([]Key) ([]Key, error)) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	lock := flock.New(s.path+".lock", flock.SetPermissions(0o600))
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	if ok, err := lock.TryLockContext(ctx, lockEvery); err != nil || !ok {
		return cmp.Or(err, context.Cause(ctx))
	}
	defer lock.Close()
	all, err := s.read()
	if err != nil {
		return err
	}
	if all, err = edit(all); err != nil {
		return err
	}
	return jsonfile.Write(s.path, all)
}

func random(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw) // it never fails
	return hex.EncodeToString(raw)
}
