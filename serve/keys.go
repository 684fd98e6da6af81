package serve

import (
	"context"
	"time"

	"github.com/wisbox/wisbox/internal/apikeys"
)

// Key is an API key without its text.
type Key = apikeys.Key

// Keys are the API keys of a server's directory. A server that runs notices a change.
type Keys struct{ store *apikeys.Store }

// KeyOptions of [Keys.Create]; the zero value works.
type KeyOptions struct {
	Name string
	// Expires is how long the key is valid; 0 for ever.
	Expires time.Duration
	// Sandboxes is how many there may be at once, Creations how many may be made in a
	// minute; 0 is the server's default.
	Sandboxes, Creations int
	// CPUs, Memory and Disk bound what the key's sandboxes may take together, Disk with the
	// snapshots; 0 is no bound. Memory and Disk are bytes.
	CPUs         float64
	Memory, Disk int64
	// Metrics lets the key read the server's own metrics.
	Metrics bool
	// Replaces is the id of a key whose sandboxes the new one sees.
	Replaces string
}

// KeysOf are the keys of a directory, see [Options.Dir].
func KeysOf(dir string) (*Keys, error) {
	store, err := apikeys.Open(keysFile(dir))
	if err != nil {
		return nil, err
	}
	return &Keys{store}, nil
}

// Create makes a key and returns its text, which is kept nowhere.
func (k *Keys) Create(ctx context.Context, o KeyOptions) (text string, _ Key, err error) {
	key := Key{Name: o.Name, Sandboxes: o.Sandboxes, Creations: o.Creations, CPUs: o.CPUs, Memory: o.Memory, Disk: o.Disk, Metrics: o.Metrics}
	if o.Expires > 0 {
		key.Expires = time.Now().UTC().Add(o.Expires).Truncate(time.Second)
	}
	return k.store.Create(ctx, key, o.Replaces)
}

// List are the keys, the oldest first.
func (k *Keys) List() ([]Key, error) { return k.store.List() }

// Revoke makes a key invalid. Its sandboxes live on until their time is over.
func (k *Keys) Revoke(ctx context.Context, id string) error { return k.store.Revoke(ctx, id) }
