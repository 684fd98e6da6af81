package packing

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/hostmount"
	"github.com/wisbox/wisbox/internal/jsonfile"
	"github.com/wisbox/wisbox/overlay"
	"github.com/wisbox/wisbox/tool"
)

// Record is this machine's record of a session's mounts. Changes are written back here only
// according to this record, regardless of the other machine's answers.
type Record struct {
	Created overlay.Stamp     `json:"created"` // of the session
	Mounts  []hostmount.Mount `json:"mounts"`
	Roots   []string          `json:"roots"`
	// The limits of the session's disk, for a copy that replaces the first one.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	MaxFiles int64 `json:"max_files,omitempty"`
}

// Records are the records of the sessions on one other machine. They may be used by several
// goroutines at the same time.
type Records struct{ dir string }

// RecordsOf returns the records of the sessions at a place, in a directory below root. The
// directory is made when the first record is kept.
func RecordsOf(root, place string) Records {
	return Records{filepath.Join(root, "far", fileName(place))}
}

// fileName returns a safe name for a file about something with any name.
func fileName(of string) string {
	sum := sha256.Sum256([]byte(of))
	return hex.EncodeToString(sum[:12])
}

// Path returns the file of a session's record.
func (r Records) Path(session string) string { return filepath.Join(r.dir, fileName(session)+".json") }

// Keep writes the record of a session.
func (r Records) Keep(session string, record Record) error {
	err := os.MkdirAll(r.dir, 0o700)
	if err == nil {
		err = jsonfile.Write(r.Path(session), record)
	}
	if err != nil {
		return tool.Errorf(tool.Unavailable, "the record of the mounts can't be written on this machine; check the room and the rights of its wisbox cache directory").Because(err)
	}
	return nil
}

// Of returns the record of the session that was created then, or nil if it has no mounts from here.
func (r Records) Of(session string, created overlay.Stamp) *Record {
	record := &Record{}
	if jsonfile.Read(r.Path(session), record) != nil || record.Created != created {
		return nil
	}
	return record
}

// Exist reports whether there may be a record of a session with this name.
func (r Records) Exist(session string) bool {
	_, err := os.Lstat(r.Path(session))
	return !errors.Is(err, fs.ErrNotExist)
}

// Rename moves a session's record, if there is one.
func (r Records) Rename(session, to string) error {
	if err := os.Rename(r.Path(session), r.Path(to)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return tool.Errorf(tool.Unavailable, "the record of the mounts can't be renamed on this machine; check the rights of its wisbox cache directory").Because(err)
	}
	return nil
}

// Remove removes a session's record, if there is one.
func (r Records) Remove(session string) error {
	if err := jsonfile.Remove(r.Path(session)); err != nil {
		return tool.Errorf(tool.Unavailable, "the record of an older session %q can't be removed on this machine; check the rights of its wisbox cache directory", session).Because(err)
	}
	return nil
}
