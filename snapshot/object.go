package snapshot

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/blake3"
)

// Hash is the BLAKE3-256 of an object: a piece of a file, a list of pieces or a
// directory. The store keeps each object once, under its hash.
type Hash [32]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

func hashOf(content []byte) Hash { return blake3.Sum256(content) }

const (
	chunkSize = 256 << 10 // bytes of a large file that make one object
	maxObject = 64 << 20  // bytes of any object; a directory of 1,000,000 entries stays under it
)

// damage reports an object that is missing, or whose bytes aren't the stored ones. Callers add the path.
type damage struct {
	hash Hash
	path string
	why  string
}

func (d *damage) Error() string { return fmt.Sprintf("object %s of %q: %s", d.hash, d.path, d.why) }

// UnmarshalText reads what String writes.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return errFormat
	}
	_, err := hex.Decode(h[:], text)
	return err
}
