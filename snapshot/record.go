package snapshot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/wisbox/wisbox/tool"
)

// Info describes a snapshot.
type Info struct {
	ID        string    `json:"id"`
	Label     string    `json:"label,omitempty"`
	Call      string    `json:"call,omitempty"` // the call that it was made before, see CreateOptions
	Auto      bool      `json:"auto,omitempty"` // made automatically, see CreateOptions
	CreatedAt time.Time `json:"created_at"`
	Files     int64     `json:"files"`     // regular files
	Bytes     int64     `json:"bytes"`     // the sum of their sizes
	NewBytes  int64     `json:"new_bytes"` // that the snapshot added to the store
	// Unstable are files and directories that changed each time they were read; Skipped are FIFOs,
	// sockets and devices. Unkept are files and directories that are in the snapshot without some
	// attributes, such as access lists, or without being one file with another name. At most 1,000 each, made
	// printable.
	Unstable []string `json:"unstable,omitempty"`
	Skipped  []string `json:"skipped,omitempty"`
	Unkept   []string `json:"unkept,omitempty"`
}

// passing reports whether the snapshot may be deleted when the store needs room.
func (i *Info) passing() bool { return i.Call != "" || i.Auto }

// record is a snapshot in the store.
type record struct {
	Format int `json:"format"`
	Info
	Root  string `json:"root"`  // hash of the top directory
	Mode  uint32 `json:"mode"`  // of the top directory
	Mtime int64  `json:"mtime"` // of the top directory
	// Names reports that the snapshot knows which files have several names; those of older versions
	// don't.
	Names bool `json:"names,omitempty"`
}

const (
	recordFormat = 1
	recordSuffix = ".json"
	maxRecord    = 4 << 20
	maxNamed     = 1_000
	maxNamedSize = 16 << 10 // bytes of the paths that a record names, by kind
	maxLabel     = 200      // characters
	maxCall      = 80       // characters
)

// checkLine checks that a text is one printable line.
func checkLine(text string, most int, field string) error {
	if n := utf8.RuneCountInString(text); n > most {
		return tool.Errorf(tool.Invalid, "%s has %d characters; the maximum is %d", field, n, most).In(field)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return tool.Errorf(tool.Invalid, "%s must be one line of printable text", field).In(field)
	}
	return nil
}

func checkID(id, field string) error {
	if _, err := ulid.ParseStrict(strings.ToUpper(id)); err != nil || id != strings.ToLower(id) {
		return tool.Errorf(tool.Invalid, "%s is neither the id nor the label of a snapshot; snapshot_list shows them", field).In(field)
	}
	return nil
}

func (s *Store) writeRecord(r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return replaceFile(s.records, r.ID+recordSuffix, b, s.opts.Fsync)
}

// readNamed reads the record that a word means, see find.
func (s *Store) readNamed(word, field string) (*record, error) {
	id, err := s.find(word, field)
	if err != nil {
		return nil, err
	}
	return s.readRecord(id, field)
}

func (s *Store) readRecord(id, field string) (*record, error) {
	if err := checkID(id, field); err != nil {
		return nil, err
	}
	b, err := readSmall(s.records, id+recordSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tool.Errorf(tool.NotFound, "snapshot %s not found; snapshot_list shows them", id).In(field)
	}
	if err != nil {
		return nil, storeError(err)
	}
	r, err := decodeRecord(b, id)
	if err != nil {
		return nil, tool.Errorf(tool.Unavailable, "the record of snapshot %s is damaged; other snapshots may still work", id).In(field).Because(err)
	}
	return r, nil
}

func decodeRecord(b []byte, id string) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	if _, err := r.top(); err != nil || r.Format != recordFormat || r.ID != id {
		return nil, errFormat
	}
	return r, nil
}

// top returns the workspace's own entry.
func (r *record) top() (*entry, error) {
	e := &entry{kind: folder, mode: r.Mode & 0o7777, mtime: r.Mtime}
	return e, e.hash.UnmarshalText([]byte(r.Root))
}

func readSmall(root *os.Root, name string) ([]byte, error) {
	info, err := root.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxRecord {
		return nil, errFormat
	}
	return root.ReadFile(name)
}

// ids returns the IDs of the snapshots, the oldest first.
func (s *Store) ids() ([]string, error) {
	names, err := listNames(s.records)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, recordSuffix); ok && checkID(id, "") == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}
