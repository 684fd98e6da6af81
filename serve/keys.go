package serve

import (
	"context"
	"time"

	"github.com/wisbox/wisbox"
	"github.com/wisbox/wisbox/internal/apikeys"
	"github.com/wisbox/wisbox/internal/registry"
)

// Key is an API key without its text.
type Key = apikeys.Key

// Keys are the API keys of a server's directory. A running server notices a change.
type Keys struct {
	dir   string
	store *apikeys.Store
}

// KeyOptions are options of [Keys.Create]; the zero value works.
type KeyOptions struct {
	Name string
	// Expires is how long the key is valid; 0 means forever.
	Expires time.Duration
	// Sandboxes is the maximum at once, Creations the maximum per minute; 0 means the server's
	// default.
	Sandboxes, Creations int
	// CPUs, Memory and Disk bound the total of the key's sandboxes; Disk includes their logs and
	// all snapshots. 0 means no limit. Memory and Disk are bytes.
	CPUs         float64
	Memory, Disk int64
	// Metrics lets the key read the server's own metrics.
	Metrics bool
	// Replaces is the ID of a key whose sandboxes the new key can use, too.
	Replaces string
}

// KeysOf returns the keys of a directory, see [Options.Dir].
func KeysOf(dir string) (*Keys, error) {
	store, err := apikeys.Open(keysFile(dir))
	if err != nil {
		return nil, err
	}
	return &Keys{dir, store}, nil
}

// Create creates a key and returns its text, which isn't stored anywhere.
func (k *Keys) Create(ctx context.Context, o KeyOptions) (text string, _ Key, err error) {
	key := Key{Name: o.Name, Sandboxes: o.Sandboxes, Creations: o.Creations, CPUs: o.CPUs, Memory: o.Memory, Disk: o.Disk, Metrics: o.Metrics}
	if o.Expires > 0 {
		key.Expires = time.Now().UTC().Add(o.Expires).Truncate(time.Second)
	}
	return k.store.Create(ctx, key, o.Replaces)
}

// List returns the keys, the oldest first.
func (k *Keys) List() ([]Key, error) { return k.store.List() }

// Taken is the total that the sandboxes and snapshots of a key's owner may take. It counts toward
// the key's bounds.
type Taken struct {
	Sandboxes int     `json:"sandboxes"`
	Snapshots int     `json:"snapshots"`
	CPUs      float64 `json:"cpus"`
	Memory    int64   `json:"memory_bytes"`
	Disk      int64   `json:"disk_bytes"`
}

// Taken returns the current totals of the owners of keys, by [Key.Owner], without owners that have
// nothing. m is a Manager of the server's state root.
func (k *Keys) Taken(m *wisbox.Manager) (map[string]Taken, error) {
	records, err := registry.Records(k.dir)
	if err != nil {
		return nil, err
	}
	sums := map[string]*registry.Quota{}
	of := func(owner string) *registry.Quota {
		if sums[owner] == nil {
			sums[owner] = &registry.Quota{}
		}
		return sums[owner]
	}
	for _, rec := range records {
		if rec.Counts() {
			of(rec.Owner).Add(rec)
		}
	}
	snapshots, err := m.Templates()
	for _, t := range snapshots {
		if t.Owner != "" {
			of(t.Owner).Snapshots++
			of(t.Owner).Disk += t.Disk
		}
	}
	all := map[string]Taken{}
	for owner, q := range sums {
		all[owner] = Taken{q.Sandboxes, q.Snapshots, q.CPUs, q.Memory, q.Disk}
	}
	return all, err
}

// Revoke makes a key invalid. Its sandboxes live on until their time is over.
func (k *Keys) Revoke(ctx context.Context, id string) error { return k.store.Revoke(ctx, id) }
