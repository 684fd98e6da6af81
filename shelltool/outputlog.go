package shelltool

import (
	"slices"
	"sort"
	"sync"

	"github.com/wisbox/wisbox/internal/capture"
)

// stream is one of a program's two.
type stream bool

const (
	stdoutStream stream = false
	stderrStream stream = true
)

// outputLog is what is kept of a process's output: the newest bytes, both streams in
// the order in which they came, and which stream each is of.
type outputLog struct {
	ring *capture.Ring
	size int64 // bytes that it keeps

	mu    sync.Mutex
	marks []mark // in order; what is before the first is of stdout
}

// mark is where the other stream goes on.
type mark struct {
	at     int64
	stream stream
}

// maxMarks bounds what the order of the streams takes of memory, 16 bytes each. Of
// output from before half as many changes all may be shown as stdout.
const maxMarks = 1 << 16

// newOutputLog begins at an offset: what was before is not kept.
func newOutputLog(file capture.RingFile, size, at int64) *outputLog {
	return &outputLog{ring: capture.NewRingAt(file, size, at), size: size}
}

func (l *outputLog) bounds() (start, end int64) { return l.ring.Bounds() }

func (l *outputLog) write(s stream, b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := stdoutStream
	if n := len(l.marks); n > 0 {
		last = l.marks[n-1].stream
	}
	if s != last {
		l.mark(s)
	}
	_, _ = l.ring.Write(b)
}

func (l *outputLog) mark(s stream) {
	start, end := l.ring.Bounds()
	if len(l.marks) >= maxMarks {
		gone := max(l.before(start)-1, maxMarks/2) // the last one before start says what is there
		l.marks = append([]mark(nil), l.marks[gone:]...)
	}
	l.marks = append(l.marks, mark{end, s})
}

// before counts the marks at or before an offset.
func (l *outputLog) before(offset int64) int {
	return sort.Search(len(l.marks), func(i int) bool { return l.marks[i].at > offset })
}

// next gives up to limit bytes of one stream from an offset on, or from the first
// offset that is still there, and where they begin.
func (l *outputLog) next(offset int64, limit int) (data []byte, from int64, s stream, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, from, err = l.ring.Read(offset, limit)
	i := l.before(from)
	if i > 0 {
		s = l.marks[i-1].stream
	}
	if i < len(l.marks) {
		data = data[:min(int64(len(data)), l.marks[i].at-from)]
	}
	return data, from, s, err
}

// tailChunk is how much is read at once to look for lines.
const tailChunk = 64 << 10

// tail is the offset where the last lines begin.
func (l *outputLog) tail(lines int) (int64, error) {
	start, end := l.bounds()
	for at := end; at > start && lines > 0; {
		wanted := max(start, at-tailChunk)
		data, from, err := l.ring.Read(wanted, int(at-wanted))
		if err != nil || from > wanted { // dropped meanwhile: there are fewer lines
			return from, err
		}
		for i, b := range slices.Backward(data) {
			if b != '\n' || from+int64(i) == end-1 { // the newline at the end begins no line
				continue
			}
			if lines--; lines == 0 {
				return from + int64(i) + 1, nil
			}
		}
		at = from
	}
	if lines > 0 {
		return start, nil
	}
	return end, nil
}
