package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// headSuffix makes a head's name from its log's.
const headSuffix = ".head"

// Log appends to one file. Its methods are for one goroutine at a time, but for
// Sync; other Logs on the same file, of any process, may append meanwhile.
type Log struct {
	file, head *os.File
	end        int64 // the file's size when at was read or written; -1: unknown
	torn       bool  // the last line has no end
	at         Position
}

// Position is a place in a chain: the number of a line, and its hash.
type Position struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Open opens the log of a name in a directory for appending, making it where it
// is missing.
func Open(dir *os.Root, name string) (*Log, error) {
	file, err := dir.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	head, err := dir.OpenFile(name+headSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &Log{file: file, head: head, end: -1}, nil
}

// Append adds a record as one line, in one write. It waits for other writers, not
// for the disk: [Log.Sync] does. What a crash cut short is ended first and stays
// in the chain. Where the disk is full nothing of the record is left.
func (l *Log) Append(record any) error {
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	unlock, err := lock(l.file)
	if err != nil {
		return err
	}
	defer unlock()
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
func (l *Log) catchUp() error {
	info, err := l.file.Stat()
	if err != nil || info.Size() == l.end {
		return err
	}
	last, torn, err := lastLine(l.file, info.Size())
	if err != nil {
		return err
	}
	l.at, l.torn, l.end = last, torn, info.Size()
	if head, ok := readHead(l.head); ok && head.Seq >= last.Seq {
		l.at = head
	}
	return nil
}

// Sync returns when every record that was appended is on disk.
func (l *Log) Sync() error { return errors.Join(l.file.Sync(), l.head.Sync()) }

// Close ends the use of the log.
func (l *Log) Close() error { return errors.Join(l.file.Close(), l.head.Close()) }

// headSize is fixed, so that a head is always replaced as a whole.
const headSize = 128

func (l *Log) saveHead() error {
	raw, err := json.Marshal(l.at)
	if err != nil {
		return err
	}
	block := bytes.Repeat([]byte{' '}, headSize)
	copy(block, raw)
	block[headSize-1] = '\n'
	_, err = l.head.WriteAt(block, 0)
	return err
}

func readHead(r io.ReaderAt) (p Position, ok bool) {
	raw := make([]byte, headSize)
	n, _ := r.ReadAt(raw, 0)
	ok = json.Unmarshal(raw[:n], &p) == nil && p.Seq > 0
	return p, ok
}

const (
	lockWait = 2 * time.Second // a record takes microseconds
	lockPoll = time.Millisecond
)

// lock takes the file for this Log alone. A writer that was stopped within its
// write doesn't hold up the others for ever.
func lock(f *os.File) (unlock func(), err error) {
	fd := int(f.Fd())
	for deadline := time.Now().Add(lockWait); ; {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = unix.Flock(fd, unix.LOCK_UN) }, nil
		case !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
			return nil, err
		case time.Now().After(deadline):
			return nil, fmt.Errorf("lock the log: %w", err)
		}
		time.Sleep(lockPoll)
	}
}
