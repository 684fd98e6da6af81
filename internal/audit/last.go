package audit

import (
	"bytes"
	"os"
	"slices"
)

// Last calls each with the last n complete records of a log, or with all of them if there are
// fewer, the oldest first. It reads from the end, and not much more than it needs. It skips records
// that wait for a log that another process holds.
func Last(dir *os.Root, name string, n int, each func(line []byte) error) error {
	log, err := open(dir, name)
	if err != nil {
		return err
	}
	defer log.close()
	var found [][]byte // the newest first
	for _, p := range slices.Backward(log.parts) {
		if found, err = p.last(found, n); err != nil {
			return err
		}
	}
	for _, line := range slices.Backward(found) {
		if err := each(line); err != nil {
			return err
		}
	}
	return nil
}

// last adds a part's records to found, the newest first, until there are n.
func (p part) last(found [][]byte, n int) ([][]byte, error) {
	var rest []byte // the end of a line whose beginning isn't read yet
	for end := p.size; end > 0 && len(found) < n; {
		from := max(0, end-tailSize)
		piece := make([]byte, end-from, end-from+int64(len(rest)))
		if _, err := p.ReadAt(piece, from); err != nil {
			return nil, err
		}
		lines := bytes.Split(append(piece, rest...), []byte("\n"))
		whole := lines
		if rest = nil; from > 0 {
			rest, whole = lines[0], lines[1:]
		}
		for _, line := range slices.Backward(whole) {
			if _, ok := parse(line); ok && len(found) < n {
				found = append(found, line)
			}
		}
		end = from
	}
	return found, nil
}
