package shelltool

import (
	"slices"
	"sort"
	"sync"

	"github.com/wisbox/wisbox/internal/capture"
)

// stream is one of a program's two output streams.
type stream bool

const (
	stdoutStream stream = false
	stderrStream stream = true
)

// outputLog keeps the newest output of a process: the bytes of both streams, in the order of their
// arrival, and the stream of each.
type outputLog struct {
	ring *capture.Ring
	size int64 // bytes that it keeps

	mu    sync.Mutex
	marks []mark // in order; bytes before the first belong to stdout
}

// mark is an offset at which the other stream continues.
type mark struct {
	at     int64
	stream stream
}

// maxMarks bounds the memory for the order of the streams: each mark takes 16 bytes. Output older
// than half as many marks may all be shown as stdout.
const maxMarks = 1 << 16

// newOutputLog returns a log that begins at an offset, without earlier output.
func newOutputLog(file capture.RingFile, size, at int64) *outputLog {
	return &outputLog{ring: capture.NewRing(file, size, at), size: size}
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
		gone := max(l.before(start)-1, maxMarks/2) // the last one before start gives the stream at start
		l.marks = append([]mark(nil), l.marks[gone:]...)
	}
	l.marks = append(l.marks, mark{end, s})
}

// before counts the marks at or before an offset.
func (l *outputLog) before(offset int64) int {
	return sort.Search(len(l.marks), func(i int) bool { return l.marks[i].at > offset })
}

// next returns at most limit bytes of one stream, from an offset or from the first offset that is
// still kept, and the offset where they begin.
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

// tailChunk is the number of bytes read at once to find lines.
const tailChunk = 64 << 10

// tail returns the offset of the last lines.
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
