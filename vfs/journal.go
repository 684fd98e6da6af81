package vfs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/wisbox/wisbox/internal/pathname"
)

// journal keeps records in a file of JSON lines, to which several processes append. A lost line
// loses only version numbers and whether a file was read, so errors of the journal fail no call:
// the session continues in memory. The caller chooses its path, outside of any workspace.
type journal struct {
	path    string
	file    *os.File
	offset  int64 // end of the lines that were read
	pending bytes.Buffer
}

// journalLine is a record. Its keys are short because there are many.
type journalLine struct {
	Path    string   `json:"p"`
	Version int64    `json:"v"`
	Stamp   [4]int64 `json:"f"`
	Created int64    `json:"c"`
	Seen    bool     `json:"s,omitempty"`
	By      clients  `json:"b,omitempty"` // whoever has seen it; everybody if there is none
	Latin1  bool     `json:"l,omitempty"`
}

func openJournal(path string) (*journal, error) {
	j := &journal{path: path}
	if err := j.open(); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *journal) open() error {
	file, err := os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	j.file, j.offset = file, 0
	return nil
}

func (j *journal) close() error { return j.file.Close() }

// add appends a record. It skips names that no path may have, since nobody can ask for them.
func (j *journal) add(path string, r record) {
	if !pathname.Text(path) {
		return
	}
	line, err := json.Marshal(journalLine{
		Path: path, Version: r.version, Created: r.created, Seen: len(r.seen) > 0, By: r.seen, Latin1: r.latin1,
		Stamp: [4]int64{int64(r.stamp.Ino), r.stamp.Size, r.stamp.Mtime, r.stamp.Ctime},
	})
	if err != nil {
		return
	}
	j.pending.Write(line)
	j.pending.WriteByte('\n')
}

func (j *journal) flush() {
	if j.pending.Len() > 0 {
		_, _ = j.file.Write(j.pending.Bytes())
		j.pending.Reset()
	}
}

// read calls each for the new lines, including this process's own. It skips incomplete and corrupt
// lines.
func (j *journal) read(each func(string, record)) {
	j.follow()
	info, err := j.file.Stat()
	if err != nil || info.Size() <= j.offset {
		return
	}
	r := bufio.NewReader(io.NewSectionReader(j.file, j.offset, info.Size()-j.offset))
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return // another process is still writing this line: read it next time
		}
		j.offset += int64(len(line))
		var l journalLine
		if json.Unmarshal(line, &l) == nil && l.Version > 0 && l.Version < maxVersion {
			each(l.Path, l.record())
		}
	}
}

func (l journalLine) record() record {
	seen := l.By[max(len(l.By)-maxClients, 0):]
	if l.Seen && len(seen) == 0 {
		seen = clients{everybody}
	}
	return record{
		version: l.Version, created: l.Created, seen: seen, latin1: l.Latin1,
		stamp: stamp{Ino: uint64(l.Stamp[0]), Size: l.Stamp[1], Mtime: l.Stamp[2], Ctime: l.Stamp[3]},
	}
}

// follow opens the file by which another process has replaced this one.
func (j *journal) follow() {
	mine, err := j.file.Stat()
	if err != nil {
		return
	}
	if now, err := os.Lstat(j.path); err != nil || os.SameFile(mine, now) {
		return
	}
	old := j.file
	if j.open() == nil {
		_ = old.Close()
	}
}

const journalSlack = 1 << 20 // bytes that may be superseded

// grown reports whether the journal is much longer than its records need.
func (j *journal) grown(memory int) bool { return j.offset > 2*int64(memory)+journalSlack }

func (j *journal) compact(records map[string]record) {
	j.pending.Reset()
	for path, r := range records {
		j.add(path, r)
	}
	if err := replaceFile(j.path, j.pending.Bytes()); err == nil {
		j.pending.Reset()
		j.follow()
	}
}

func replaceFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("make the journal: %w", err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("replace the journal: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}
