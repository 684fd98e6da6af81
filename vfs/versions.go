package vfs

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of the paths with a record, and so of the memory: a program can create any number of
// names.
const (
	maxRecords   = 100_000
	recordMemory = 16 << 20 // bytes of all records
	recordSize   = 100      // bytes of one without its path
	maxVersion   = 1 << 53  // in a record from another workspace
)

// stamp distinguishes one state of a file from the next. The change time is the
// kernel's: unlike the others, a program can't set it.
type stamp struct {
	Ino          uint64
	Size         int64
	Mtime, Ctime int64 // nanoseconds
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano()}
}

// carried reports whether the state was recorded in another copy of the workspace, in which case it
// has only size and time.
func (s stamp) carried() bool { return s.Ino == 0 && s != stamp{} }

// sameContent compares two states of a file that was renamed in between, which changes its change
// time.
func sameContent(a, b *unix.Stat_t) bool {
	x, y := stampOf(a), stampOf(b)
	x.Ctime, y.Ctime = 0, 0
	return x == y && a.Dev == b.Dev
}

// record is the known state of one path.
type record struct {
	version int64
	stamp   stamp   // zero: the path doesn't exist
	created int64   // milliseconds since 1970
	seen    clients // who has read or written exactly this state
	latin1  bool    // the session has written this state as Latin-1
}

func (r record) createdAt() time.Time { return time.UnixMilli(r.created).UTC() }

// versions counts the changes of files by their true path. It notices a program's change when the
// path is next used. A removed path keeps its number, so that no number ever means two contents.
type versions struct {
	mu      sync.Mutex
	records map[string]record
	memory  int      // bytes of records
	journal *journal // nil means in memory only
}

func newVersions(file string) (*versions, error) {
	v := &versions{records: map[string]record{}}
	if file == "" {
		return v, nil
	}
	var err error
	if v.journal, err = openJournal(file); err != nil {
		return nil, err
	}
	v.pull()
	return v, nil
}

func (v *versions) close() error {
	if v.journal == nil {
		return nil
	}
	v.push()
	return v.journal.close()
}

// look returns the record of the current state of path.
func (v *versions) look(path string, st *unix.Stat_t) record {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, known := v.records[path]
	now := stampOf(st)
	switch {
	case known && r.stamp == now:
		return r
	case r.stamp.carried() && r.stamp.Size == now.Size && r.stamp.Mtime == now.Mtime:
		r.stamp = now
	default:
		r.advance(now, modified(st))
	}
	if known || v.room() {
		v.set(path, r)
	}
	return r
}

func (r *record) advance(now stamp, at time.Time) {
	if r.stamp == (stamp{}) {
		r.created = at.UnixMilli()
	}
	r.version++
	r.stamp = now
	r.seen, r.latin1 = nil, false
}

// saw records that a client has read the state st of path.
func (v *versions) saw(who clientID, path string, st *unix.Stat_t) record {
	r := v.look(path, st)
	if r.seen.has(who) {
		return r
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r.seen = r.seen.and(who)
	v.makeRoom()
	v.set(path, r)
	return r
}

// wrote records that a client has made the state st of path, as Latin-1 or not.
func (v *versions) wrote(who clientID, path string, st *unix.Stat_t, latin1 bool) record {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.records[path]
	r.advance(stampOf(st), modified(st))
	r.seen, r.latin1 = clients{who}, latin1
	v.makeRoom()
	v.set(path, r)
	return r
}

// known reports whether a client has read or written the state st of path.
func (v *versions) known(who clientID, path string, st *unix.Stat_t) bool {
	return v.look(path, st).seen.has(who)
}

// latin1 reports whether the session has written the state st of path as Latin-1.
func (v *versions) latin1(path string, st *unix.Stat_t) bool { return v.look(path, st).latin1 }

// removed records that path and everything below it are gone.
func (v *versions) removed(path string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for p, r := range v.records {
		if p == path || strings.HasPrefix(p, path+"/") {
			r.stamp, r.seen, r.latin1 = stamp{}, nil, false
			v.set(p, r)
		}
	}
}

func (v *versions) room() bool { return len(v.records) < maxRecords && v.memory < recordMemory }

// makeRoom drops a record if there are too many.
func (v *versions) makeRoom() {
	for p := range v.records {
		if v.room() {
			return
		}
		delete(v.records, p)
		v.memory -= len(p) + recordSize
	}
}

func (v *versions) put(path string, r record) {
	if _, known := v.records[path]; !known {
		v.memory += len(path) + recordSize
	}
	v.records[path] = r
}

func (v *versions) set(path string, r record) {
	v.put(path, r)
	if v.journal != nil {
		v.journal.add(path, r)
	}
}

// pull reads the records of the session's other processes.
func (v *versions) pull() {
	if v.journal == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.journal.read(v.merge)
}

// merge adds a record of the journal. The higher number wins, and the later one of equal numbers.
func (v *versions) merge(path string, r record) {
	if mine, known := v.records[path]; known {
		if mine.version > r.version {
			return
		}
		if mine.version == r.version && mine.stamp == r.stamp {
			r.seen = mine.seen.and(r.seen...)
		}
	}
	v.makeRoom()
	v.put(path, r)
}

// push writes the new records of this process.
func (v *versions) push() {
	if v.journal == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.journal.flush()
}

// grown reports whether the journal is much longer than its records need.
func (v *versions) grown() bool {
	if v.journal == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.journal.grown(v.memory)
}

// compact shortens the journal. The caller holds the session's write lock.
func (v *versions) compact() {
	if v.journal == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.journal.read(v.merge)
	v.journal.compact(v.records)
}

// carry returns the records in the journal's form, for a copy of the workspace, without whether the
// session has read the files. It is at most some 8 MiB.
func (v *versions) carry() []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out journal
	for path, r := range v.records {
		if out.pending.Len() > carryMemory {
			break
		}
		r.seen = nil
		if r.stamp != (stamp{}) {
			r.stamp.Ino, r.stamp.Ctime = 0, 0
		}
		out.add(path, r)
	}
	return out.pending.Bytes()
}

const carryMemory = 8 << 20

// Carried returns the versions and times of creation of the workspace's files, as the content of an
// [Options.VersionsFile] for a workspace that begins as a copy of this one.
func (f *FS) Carried(ctx context.Context) ([]byte, error) {
	leave, err := f.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return f.versions.carry(), nil
}
