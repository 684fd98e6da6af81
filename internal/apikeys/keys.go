// Package apikeys checks the API keys of a server. They are stored as hashes in a file, or given for one run. A key
// stands for an owner; owners never see each other's sandboxes.
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
	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/tool"
)

// Key is an API key without its text.
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// Owner identifies the owner of the sandboxes that the key opens. A key that replaces another
	// keeps its owner.
	Owner   string    `json:"owner"`
	Hash    string    `json:"hash,omitempty"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
	// Sandboxes is the maximum number of the owner's sandboxes at one time; 0 is the server's
	// default.
	Sandboxes int `json:"sandboxes,omitempty"`
	// Creations is the maximum number of sandboxes that the owner may create in a minute; 0 is the
	// server's default.
	Creations int `json:"creations_per_minute,omitempty"`
	// CPUs, Memory and Disk bound the sum over the owner's sandboxes; Disk includes the owner's
	// snapshots. Memory and Disk are in bytes, and 0 means no limit.
	CPUs   float64 `json:"cpus,omitempty"`
	Memory int64   `json:"memory_bytes,omitempty"`
	Disk   int64   `json:"disk_bytes,omitempty"`
	// Metrics lets the key read the server's own metrics.
	Metrics bool `json:"metrics,omitempty"`
}

const (
	prefix    = "e2b_" // clients of E2B check for it and for hexadecimal digits after it
	keyBytes  = 20
	idBytes   = 4
	minText   = 22 // characters of a given key
	maxKeys   = 10_000
	lockEvery = 50 * time.Millisecond
)

var lockTime = patience.For(10 * time.Second)

// Store is the file of the keys. Several processes may change it; a server notices the changes. Its
// methods may be called from many goroutines at once.
type Store struct {
	path  string
	given map[string]Key // by hash, for this process only

	mu    sync.Mutex
	seen  os.FileInfo
	known map[string]Key // keys of the file, by hash
}

// Open returns the Store for a file, which the first Create writes. given are texts of keys for this process only; each
// has a separate owner.
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

// Empty reports whether there are no keys.
func (s *Store) Empty() bool {
	all, err := s.file()
	return err == nil && len(all)+len(s.given) == 0
}

// Check returns the key for a text. It compares hashes, so its duration reveals nothing about
// existing keys.
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

// file returns the current keys of the file.
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

// List returns the keys of the file, the oldest first, without their hashes.
func (s *Store) List() ([]Key, error) {
	all, err := s.read()
	for i := range all {
		all[i].Hash = ""
	}
	slices.SortStableFunc(all, func(a, b Key) int { return a.Created.Compare(b.Created) })
	return all, err
}

// Create adds a key and returns its text, which is stored nowhere. replaces is the id of an
// existing key, whose owner the new key gets, or "" for a new owner. The replaced key stays valid
// until it is revoked.
func (s *Store) Create(ctx context.Context, k Key, replaces string) (text string, _ Key, err error) {
	text = prefix + random(keyBytes)
	k.ID, k.Hash, k.Created = "key_"+random(idBytes), hashOf(text), time.Now().UTC().Truncate(time.Second)
	k.Owner = k.ID
	err = s.change(ctx, func(all []Key) ([]Key, error) {
		if len(all) >= maxKeys {
			return nil, tool.Errorf(tool.Limit, "there are %d keys, the maximum; revoke some first", len(all))
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

// Revoke removes a key. The owner's sandboxes stay until their time is over.
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
	return tool.Errorf(tool.NotFound, "unknown key %q; wisbox serve key list shows the keys", id)
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
