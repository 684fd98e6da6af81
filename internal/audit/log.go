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

	"github.com/wisbox/wisbox/internal/retry"
)

// Options bound a log; nil and zero fields work. All that write one log must
// agree on them.
type Options struct {
	// MaxSize is how large a file may become, in bytes, before the next record
	// begins another one. Default 8 MiB.
	MaxSize int64
	// Keep is how many full files stay beside the one that is written. Default 3.
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

// Log appends to one log. Its methods are for one goroutine at a time, but for
// Sync; other Logs on the same files, of any process, may append meanwhile.
type Log struct {
	dir  *os.Root
	name string
	opts Options

	file, headFile *os.File
	end            int64 // the file's size when at was read or written; -1: unknown
	torn           bool  // the last line has no end
	at             Position
	start          Position // see head

	held   bool     // another one held the log when it was last tried
	aside  *os.File // of records that wait for it; nil where none do
	looked bool     // for such files of writers that are gone
}

// Position is a place in a chain: the number of a line, and its hash.
type Position struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Open opens the log of a name in a directory for appending, making it where it
// is missing. The directory stays the caller's and must outlive the Log.
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

// Append adds a record as one line, in one write. It waits for other writers as
// long as a disk write may take, 20 ms, and not for the disk: [Log.Sync] does.
// Where one of them was stopped in its write, and so holds the log, the record
// waits in a file beside it and gets into the chain with the first one that finds
// the log free. What a crash cut short is ended first and stays in the chain.
// Where the disk is full nothing of the record is left.
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

// lock waits once for a log that is held; from then on, until it is free again,
// it only looks.
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

// undo takes back what was written of a record that didn't fit.
func (l *Log) undo(written int) error {
	end := l.end
	l.end = -1
	if written == 0 {
		return nil
	}
	return l.file.Truncate(end)
}

// chained is a record's line: an object gets two members more, anything else is
// put into one.
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

// catchUp finds where the chain goes on after what others wrote. The head wins
// over lines that don't reach it: the new line then tells of the gap for good.
// Only a full file is ever moved away, so that one which isn't full is the one
// that has the name.
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

// turnOver goes on in the next file after a full one, which another process may
// have begun already.
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

// rotate moves each file on by one, over the oldest. The head is right before
// anything moves: after a crash at any step the next writer goes on.
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

// startAfter makes the log begin after a file that is about to go.
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

// Sync returns when every record that was appended is on disk.
func (l *Log) Sync() error { return errors.Join(l.file.Sync(), l.headFile.Sync()) }

// Close ends the use of the log. Records that still wait are taken by the next Log.
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
	readWait   = 2 * time.Second
	lockPoll   = time.Millisecond
)

var errHeld = errors.New("the log is held by another process")

// lock takes the log by its head for its caller alone, or gives errHeld: a writer
// that was stopped within its write doesn't hold up the others for ever.
func lock(head *os.File, wait time.Duration) (unlock func(), err error) {
	fd := int(head.Fd())
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	held := func(err error) bool { return errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) }
	times := retry.Times{Count: int(wait/lockPoll) + 1, Pause: lockPoll}
	err = times.Do(ctx, held, func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	switch {
	case held(err):
		return nil, errHeld
	case err != nil:
		return nil, fmt.Errorf("lock the log: %w", err)
	}
	return func() { _ = unix.Flock(fd, unix.LOCK_UN) }, nil
}
