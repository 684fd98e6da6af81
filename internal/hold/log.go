package hold

import (
	"io"
	"os"
	"sync"
)

// maxLog bounds a holder's log. At this size it becomes the old one, and a new one begins.
const maxLog = 1 << 20

// fileLog is a holder's log.
type fileLog struct {
	path string
	mu   sync.Mutex
	file *os.File
}

// NewLog returns a writer for a log, which takes one line at a time. It creates the file, for this
// user alone, with the first line. Lines that can't be written are lost: a holder serves its session
// without its log too.
func NewLog(path string) io.Writer { return &fileLog{path: path} }

// Write implements io.Writer.
func (l *fileLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		if info, err := l.file.Stat(); err == nil && info.Size()+int64(len(line)) <= maxLog {
			return l.file.Write(line)
		}
		_ = l.file.Close()
		l.file = nil
		if err := os.Rename(l.path, l.path+".old"); err != nil {
			return 0, err
		}
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	l.file = file
	return file.Write(line)
}
