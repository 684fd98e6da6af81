package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

const headSuffix = ".head"

// older returns the name of the file after n rotations: log.jsonl.1 is the newest of them.
func older(name string, n int) string { return name + "." + strconv.Itoa(n) }

// head records the last line of the log and, after rotation has removed files, the position before
// its first line.
type head struct {
	Position
	Start Position `json:"start,omitzero"`
}

// headSize is fixed, so that a head is always replaced as a whole.
const headSize = 256

func (h head) save(to io.WriterAt) error {
	raw, err := json.Marshal(h)
	if err != nil {
		return err
	}
	block := bytes.Repeat([]byte{' '}, headSize)
	copy(block, raw)
	block[headSize-1] = '\n'
	_, err = to.WriteAt(block, 0)
	return err
}

func readHead(r io.ReaderAt) (h head, ok bool) {
	raw := make([]byte, headSize)
	n, _ := r.ReadAt(raw, 0)
	ok = json.Unmarshal(raw[:n], &h) == nil && h.Seq > 0
	return h, ok
}

// part is one file of a log, with its size at the time it was opened.
type part struct {
	name string
	*os.File
	size int64
}

func (p part) reader() io.Reader { return io.NewSectionReader(p, 0, p.size) }

// view is a log at one moment; it doesn't show later changes.
type view struct {
	parts    []part // the oldest first
	waiting  []part // records that aren't in the chain yet
	head     head
	headRead bool // it exists and is complete
	headFile bool // it exists
}

// open reads a log between two records, so writers never wait for a reader. If a writer was stopped
// during a write, open reads all the same: nothing changes meanwhile, and a head that is one record
// behind is not a fault.
func open(dir *os.Root, name string) (v *view, err error) {
	v = &view{}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	h, err := dir.Open(name + headSuffix)
	switch {
	case err == nil:
		defer h.Close()
		unlock, err := lock(h, readWait)
		if err == nil {
			defer unlock()
		} else if !errors.Is(err, errHeld) {
			return v, err
		}
		v.headFile = true
		v.head, v.headRead = readHead(h)
	case !errors.Is(err, fs.ErrNotExist):
		return v, err
	}
	return v, v.openParts(dir, name)
}

func (v *view) openParts(dir *os.Root, name string) error {
	rotated, err := rotations(dir, name)
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(rotated) {
		if err := add(&v.parts, dir, older(name, n)); err != nil {
			return err
		}
	}
	if err := add(&v.parts, dir, name); err != nil {
		return err
	}
	waiting, err := asides(dir, name)
	for _, name := range waiting {
		err = errors.Join(err, add(&v.waiting, dir, name))
	}
	return err
}

// rotations returns the numbers of the older files; a crash may leave a gap.
func rotations(dir *os.Root, name string) (numbers []int, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	for _, file := range files {
		if n, err := strconv.Atoi(strings.TrimPrefix(file, name+".")); err == nil && older(name, n) == file {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, err
}

func add(to *[]part, dir *os.Root, name string) error {
	f, err := dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	*to = append(*to, part{name, f, info.Size()})
	return nil
}

func (v *view) close() {
	for _, p := range slices.Concat(v.parts, v.waiting) {
		_ = p.Close()
	}
}
