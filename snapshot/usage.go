package snapshot

import (
	"errors"
	"io/fs"
	"os"
)

// Usage is what a session's snapshots take.
type Usage struct {
	Snapshots int   `json:"snapshots"` // steps among them
	Steps     int   `json:"steps"`
	Bytes     int64 `json:"bytes"`       // on the disk
	Limit     int64 `json:"limit_bytes"` // that they may take; the caller's to fill in
}

// UsageOf looks into the directory of a store, which may be in use, or not yet be a
// store.
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

// add counts the files of a directory; those that go meanwhile don't count.
func (u *Usage) add(root *os.Root) error {
	names, err := listNames(root)
	for _, name := range names {
		if info, err := root.Lstat(name); err == nil && info.Mode().IsRegular() {
			u.Bytes += info.Size()
		}
	}
	return err
}
