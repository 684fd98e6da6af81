package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// Kinds of a Problem.
const (
	Changed = "changed" // a record differs from the one written
	Removed = "removed" // records are missing
	Cut     = "cut"     // a record is incomplete: its writer was killed
	Added   = "added"   // a record that wisbox didn't write
	NoHead  = "no_head" // what was last is unknown
)

// Problem is one place where a log differs from what was written.
type Problem struct {
	File    string `json:"file"` // the log, or a file that rotation made of it
	Line    int    `json:"line"` // in the file, from 1
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// Report is the result of [Verify].
type Report struct {
	Records  int       `json:"records"`
	Head     Position  `json:"head"` // the last line: keep it to compare later
	Problems []Problem `json:"problems"`
	// Waiting counts records that aren't in the chain yet because another process holds the log.
	// They can't be verified.
	Waiting int `json:"waiting,omitempty"`
}

// Verify checks the log with that name in a directory, including its older files. A missing log
// counts as empty. Verify reads the log between two records; writers don't wait for it.
func Verify(dir *os.Root, name string) (*Report, error) {
	log, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	defer log.close()
	v := verifier{report: Report{Problems: []Problem{}}, file: name, start: log.head.Start, at: log.head.Start}
	for _, p := range log.parts {
		v.file, v.n = p.name, 0
		if err := lines(p.reader(), v.line); err != nil {
			return nil, err
		}
	}
	v.closeWith(log)
	v.report.Head = v.at
	err = log.eachWaiting(func([]byte) error { v.report.Waiting++; return nil })
	return &v.report, err
}

// Records calls each with the JSON of every complete record of a log and its older files, the
// oldest first. Records that wait for a log that another process holds come last, without a number
// and a hash.
func Records(dir *os.Root, name string, each func(line []byte) error) error {
	log, err := open(dir, name)
	if err != nil {
		return err
	}
	defer log.close()
	for _, p := range log.parts {
		err := lines(p.reader(), func(line []byte) error {
			if _, ok := parse(line); !ok {
				return nil
			}
			return each(line)
		})
		if err != nil {
			return err
		}
	}
	return log.eachWaiting(each)
}

func (v *view) eachWaiting(each func(line []byte) error) error {
	for _, p := range v.waiting {
		err := lines(p.reader(), func(line []byte) error {
			if !whole(line) {
				return nil
			}
			return each(line)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lines calls each with every line without its newline; the last line may lack one.
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
	file   string
	n      int      // lines of the file
	read   int      // lines of the log
	torn   bool     // the line before was incomplete and has been reported
	start  Position // where the oldest file continues the chain
	at     Position
}

func (v *verifier) found(kind, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{v.file, v.n, kind, fmt.Sprintf(format, args...)})
}

// line verifies one line. After a problem it continues from there, so that each problem is reported
// once.
func (v *verifier) line(line []byte) error {
	v.n++
	v.read++
	l, ok := parse(line)
	if !ok {
		v.found(Cut, "record %d is incomplete: its writer was ended while it wrote", v.at.Seq+1)
		v.at, v.torn = Position{v.at.Seq + 1, sum(line)}, true
		return nil
	}
	v.report.Records++
	if v.read == 1 && l.Seq <= v.start.Seq { // a file that a crash kept from being removed
		v.at = Position{l.Seq - 1, *l.Prev}
	}
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
	case v.torn: // the rest of that line may be lost or changed
	case v.read == 1:
		v.found(Removed, "the first record says that there were others before it")
	default:
		v.found(Changed, "record %d was changed after it was written", v.at.Seq)
	}
}

// closeWith compares the chain's end with the head. A writer that is killed between its two writes
// leaves the head one record behind, never more.
func (v *verifier) closeWith(log *view) {
	head := log.head
	switch {
	case !log.headFile && v.read == 0:
	case !log.headFile:
		v.found(NoHead, "the log's head is missing, so it is unknown whether records are missing at the end")
	case !log.headRead && v.at.Seq <= 1:
	case !log.headRead:
		v.found(NoHead, "the log's head can't be read, so it is unknown whether records are missing at the end")
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
