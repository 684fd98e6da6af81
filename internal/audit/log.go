package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wisbox/wisbox/internal/patience"
	"github.com/wisbox/wisbox/internal/retry"
)

// Options bound a log; nil and zero fields have defaults. All writers of a log must use the same
// options.
type Options struct {
	// MaxSize is the maximum size of a file, in bytes; the next record then begins a new file.
	// Default 8 MiB.
	MaxSize int64
	// Keep is the number of full files to keep. Default 3.
	Keep int
}

func (o *Options) withDefaults() Options {
	out := Options{MaxSize: 8 << 20, Keep: 3}
	if o != nil && o.MaxSize > 0 {
		out.MaxSize = o.MaxSize
	}
	if o != nil && o.Keep > 0 {
		out.Keep = o.Keep
	}
	return out
}

// Log appends to one log. Its methods, except for Sync, are for one goroutine at a time. Other Logs
// on the same files, of any process, may append meanwhile.
type Log struct {
	dir  *os.Root
	name string
	opts Options

	file, headFile *os.File
	end            int64 // the file's size when at was read or written; -1: unknown
	torn           bool  // the last line has no end
	at             Position
	start          Position // see head

	held   bool     // the log was held at the last attempt
	aside  *os.File // the file of records that wait; nil if there are none
	looked bool     // whether files of writers that are gone were taken
}

// Position is a place in a chain: the number of a line, and its hash.
type Position struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Open opens or creates the log with that name in a directory for appending. The directory stays
// the caller's and must outlive the Log.
func Open(dir *os.Root, name string, opts *Options) (*Log, error) {
	headFile, err := dir.OpenFile(name+headSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Log{dir: dir, name: name, opts: opts.withDefaults(), headFile: headFile}
	if err := l.openFile(); err != nil {
		return nil, errors.Join(err, headFile.Close())
	}
	return l, nil
}

func (l *Log) openFile() (err error) {
	l.end = -1
	l.file, err = l.dir.OpenFile(l.name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	return err
}

// Append adds a record as one line, in one write. It waits for other writers for the time of a disk
// write, 20 ms, but not for the disk: [Log.Sync] does. If another writer was stopped during its
// write and so holds the log, the record waits in a second file; the first Log that finds the log
// free adds it to the chain. Append ends a line that a crash cut short, which stays in the chain.
// If the disk is full, nothing of the record remains.
func (l *Log) Append(record any) error {
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	unlock, err := l.lock()
	if errors.Is(err, errHeld) {
		return l.setAside(body)
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.takeAside(); err != nil {
		return err
	}
	return l.link(body)
}

// lock waits once for a log that is held. After that, until the log is free again, it only tries.
func (l *Log) lock() (unlock func(), err error) {
	wait := appendWait
	if l.held {
		wait = 0
	}
	unlock, err = lock(l.headFile, wait)
	l.held = errors.Is(err, errHeld)
	return unlock, err
}

// link writes a record at the end of the chain.
func (l *Log) link(body []byte) error {
	if err := l.catchUp(); err != nil {
		return err
	}
	line := chained(l.at, body)
	out := append(bytes.Clone(line), '\n')
	if l.torn {
		out = append([]byte{'\n'}, out...)
	}
	if n, err := l.file.Write(out); err != nil {
		return errors.Join(err, l.undo(n))
	}
	l.end += int64(len(out))
	l.torn = false
	l.at = Position{l.at.Seq + 1, sum(line)}
	return l.saveHead()
}

func (l *Log) saveHead() error { return head{l.at, l.start}.save(l.headFile) }

// undo removes the part of a record that fit on the disk.
func (l *Log) undo(written int) error {
	end := l.end
	l.end = -1
	if written == 0 {
		return nil
	}
	return l.file.Truncate(end)
}

// chained returns a record's line: an object gets two more members, anything else is put into an
// object.
func chained(after Position, body []byte) []byte {
	line := fmt.Appendf(nil, `{"seq":%d,"prev":%q`, after.Seq+1, after.Hash)
	switch {
	case bytes.Equal(body, []byte("{}")):
		return append(line, '}')
	case body[0] == '{':
		return append(append(line, ','), body[1:]...)
	}
	return append(append(append(line, `,"record":`...), body...), '}')
}

// catchUp finds the end of the chain after other writers' lines. The head wins over lines that
// don't reach it: the new line then records the gap for good. Only full files are ever renamed, so
// a file that isn't full has the log's name.
func (l *Log) catchUp() error {
	for {
		info, err := l.file.Stat()
		if err != nil {
			return err
		}
		if info.Size() != l.end {
			if err := l.readEnd(info.Size()); err != nil {
				return err
			}
		}
		if l.end < l.opts.MaxSize {
			return nil
		}
		if err := l.turnOver(info); err != nil {
			return err
		}
	}
}

func (l *Log) readEnd(size int64) error {
	last, torn, err := lastLine(l.file, size)
	if err != nil {
		return err
	}
	l.at, l.torn, l.end = last, torn, size
	if h, ok := readHead(l.headFile); ok {
		l.start = h.Start
		if h.Seq >= last.Seq {
			l.at = h.Position
		}
	}
	return nil
}

// turnOver continues in the next file, which another process may already have begun.
func (l *Log) turnOver(full os.FileInfo) error {
	now, err := l.dir.Lstat(l.name)
	if err == nil && os.SameFile(full, now) {
		err = l.rotate()
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	old := l.file
	if err := l.openFile(); err != nil {
		l.file = old
		return err
	}
	return old.Close()
}

// rotate renames each file to the next number and replaces the oldest. The head is correct before
// anything is renamed, so after a crash at any step the next writer can continue.
func (l *Log) rotate() error {
	if err := l.startAfter(older(l.name, l.opts.Keep)); err != nil {
		return err
	}
	if err := l.saveHead(); err != nil {
		return err
	}
	for n := l.opts.Keep; n > 1; n-- {
		err := l.dir.Rename(older(l.name, n-1), older(l.name, n))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return l.dir.Rename(l.name, older(l.name, 1))
}

// startAfter makes the log begin after a file that is about to be removed.
func (l *Log) startAfter(oldest string) error {
	f, err := l.dir.Open(oldest)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	l.start, _, err = lastLine(f, info.Size())
	return err
}

// Sync returns when all appended records are on disk.
func (l *Log) Sync() error { return errors.Join(l.file.Sync(), l.headFile.Sync()) }

// Close closes the Log. The next Log takes records that still wait.
func (l *Log) Close() error {
	if l.aside == nil {
		return errors.Join(l.file.Close(), l.headFile.Close())
	}
	unlock, err := l.lock()
	if err == nil {
		err = l.takeAside()
		unlock()
	}
	if errors.Is(err, errHeld) {
		err = nil
	}
	if l.aside != nil {
		err = errors.Join(err, l.aside.Close())
	}
	return errors.Join(err, l.file.Close(), l.headFile.Close())
}

const (
	appendWait = 20 * time.Millisecond // a record takes microseconds
	lockPoll   = time.Millisecond
)

var readWait = patience.For(2 * time.Second)

var errHeld = errors.New("the log is held by another process")

// lock locks the log's head for the caller alone, or returns errHeld, so that a writer that was
// stopped during its write doesn't block the others for ever.
func lock(head *os.File, wait time.Duration) (unlock func(), err error) {
	fd := int(head.Fd())
	take := func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }
	if err = take(); isHeld(err) && wait > 0 { // a free log needs no timer, which would wake another thread
		err = keepTrying(take, wait)
	}
	switch {
	case isHeld(err):
		return nil, errHeld
	case err != nil:
		return nil, fmt.Errorf("lock the log: %w", err)
	}
	return func() { _ = unix.Flock(fd, unix.LOCK_UN) }, nil
}

func isHeld(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) }

func keepTrying(take func() error, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	times := retry.Times{Count: int(wait/lockPoll) + 1, Pause: lockPoll}
	return times.Do(ctx, isHeld, take)
}
