package snapshot

import (
	"errors"
	"io/fs"
	"os"
)

// Usage is the room that a session's snapshots take.
type Usage struct {
	Snapshots int   `json:"snapshots"` // including steps
	Steps     int   `json:"steps"`
	Bytes     int64 `json:"bytes"`       // on the disk
	Limit     int64 `json:"limit_bytes"` // the maximum; set by the caller
}

// UsageOf returns the usage of a store's directory. The store may be in use, or not exist yet.
func UsageOf(dir *os.Root) (u Usage, err error) {
	s := &Store{}
	if s.packs, err = dir.OpenRoot("packs"); err == nil {
		defer s.packs.Close()
		s.records, err = dir.OpenRoot("records")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	if err != nil {
		return u, storeError(err)
	}
	defer s.records.Close()
	infos, err := s.list()
	u.Snapshots = len(infos)
	for _, i := range infos {
		if i.Call != "" {
			u.Steps++
		}
	}
	return u, storeError(errors.Join(err, u.add(s.packs), u.add(s.records), u.add(dir)))
}

// add counts the files of a directory, except for those that vanish meanwhile.
func (u *Usage) add(root *os.Root) error {
	names, err := listNames(root)
	for _, name := range names {
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() {
			u.Bytes += info.Size()
		}
	}
	return err
}
