package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// What a Problem is.
const (
	Changed = "changed" // a record isn't what was written
	Removed = "removed" // records are missing
	Cut     = "cut"     // a record is incomplete: its writer was killed
	Added   = "added"   // a record that wisbox didn't write
	NoHead  = "no_head" // what was last can't be told
)

// Problem is one place where a log isn't what was written.
type Problem struct {
	Line    int    `json:"line"` // in the file, from 1
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// Report is what [Verify] found.
type Report struct {
	Records  int       `json:"records"`
	Head     Position  `json:"head"` // the last line: keep it to compare later
	Problems []Problem `json:"problems"`
}

// Verify reads the log of a name in a directory and tells where it isn't what was
// written. A log that isn't there is an empty one. It waits for a writer that is
// at work.
func Verify(dir *os.Root, name string) (*Report, error) {
	v := verifier{report: Report{Problems: []Problem{}}}
	if err := v.readLog(dir, name); err != nil {
		return nil, err
	}
	v.report.Head = v.at
	return &v.report, nil
}

func (v *verifier) readLog(dir *os.Root, name string) error {
	file, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return v.readHead(dir, name)
	}
	if err != nil {
		return err
	}
	defer file.Close()
	unlock, err := lock(file)
	if err != nil {
		return err
	}
	defer unlock()
	if err := lines(file, v.line); err != nil {
		return err
	}
	return v.readHead(dir, name)
}

func (v *verifier) readHead(dir *os.Root, name string) error {
	head, err := dir.Open(name + headSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		if v.n > 0 {
			v.found(NoHead, "the log's head is missing, so whether records are missing at the end can't be told")
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer head.Close()
	v.closeWith(head)
	return nil
}

// Records gives each whole record of a log, the oldest first, as the JSON of its
// line; what is cut is left out.
func Records(dir *os.Root, name string, each func(line []byte) error) error {
	file, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	return lines(file, func(line []byte) error {
		if _, ok := parse(line); !ok {
			return nil
		}
		return each(line)
	})
}

// lines gives each line without its newline, the last also where it has none.
func lines(r io.Reader, each func([]byte) error) error {
	in := bufio.NewReaderSize(r, tailSize)
	for {
		line, err := in.ReadBytes('\n')
		if err == nil {
			line = line[:len(line)-1]
		} else if !errors.Is(err, io.EOF) {
			return err
		}
		if err == nil || len(line) > 0 {
			if err := each(line); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

type verifier struct {
	report Report
	n      int  // lines
	torn   bool // the line before was incomplete, and that has been said
	at     Position
}

func (v *verifier) found(kind, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{v.n, kind, fmt.Sprintf(format, args...)})
}

// line follows the chain by one line. After a problem it goes on from there, so
// that each is told once.
func (v *verifier) line(line []byte) error {
	v.n++
	l, ok := parse(line)
	if !ok {
		v.found(Cut, "record %d is incomplete: its writer was ended while it wrote", v.at.Seq+1)
		v.at, v.torn = Position{v.at.Seq + 1, sum(line)}, true
		return nil
	}
	v.report.Records++
	v.judge(l)
	v.torn = false
	v.at = Position{l.Seq, sum(line)}
	return nil
}

func (v *verifier) judge(l link) {
	next := v.at.Seq + 1
	switch {
	case l.Seq == next && *l.Prev == v.at.Hash:
	case l.Seq > next:
		v.found(Removed, "%s missing before record %d", span(next, l.Seq-1), l.Seq)
	case l.Seq < next:
		v.found(Added, "record %d stands where record %d should: it was moved or added", l.Seq, next)
	case v.torn: // what was lost of that line can't be told from what was changed in it
	case v.n == 1:
		v.found(Removed, "the first record says that there were others before it")
	default:
		v.found(Changed, "record %d was changed after it was written", v.at.Seq)
	}
}

// closeWith compares the chain's end with the head. A writer that is killed
// between its two writes leaves the head one record behind, never more.
func (v *verifier) closeWith(file io.ReaderAt) {
	head, ok := readHead(file)
	switch {
	case !ok && v.at.Seq <= 1:
	case !ok:
		v.found(NoHead, "the log's head can't be read, so whether records are missing at the end can't be told")
	case head.Seq > v.at.Seq:
		v.found(Removed, "%s missing at the end: removed, or lost when the machine lost power", span(v.at.Seq+1, head.Seq))
	case head.Seq == v.at.Seq && head.Hash != v.at.Hash && !v.torn:
		v.found(Changed, "record %d, the last, was changed after it was written", v.at.Seq)
	case head.Seq < v.at.Seq-1:
		v.found(Added, "%s added at the end by another program", span(head.Seq+1, v.at.Seq))
	}
}

func span(from, to int64) string {
	if from == to {
		return fmt.Sprintf("record %d is", from)
	}
	return fmt.Sprintf("records %d to %d are", from, to)
}
