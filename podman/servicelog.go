package podman

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxServiceLog = 1 << 20
	maxLastWords  = 200 // bytes
)

// logPath returns the path of the log of the private services that were started for one state directory. It isn't in
// the runtime directory, which goes with the user's last login, and a crash's report would go with it.
func (s *service) logPath() string { return filepath.Join(s.state, "podman.log") }

// logFlags truncates the log if it has grown too large.
func (s *service) logFlags() int {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	info, err := os.Stat(s.logPath())
	if err == nil && info.Size() > maxServiceLog {
		flags |= os.O_TRUNC
	}
	return flags
}

func (s *service) logTail() string {
	data, err := os.ReadFile(s.logPath())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data[max(0, len(data)-2000):]))
}

// serviceLog is the part of a service's log that follows a connection of this process.
type serviceLog struct {
	path string // "" if it isn't our own service's
	from int64  // where it begins
}

func (l *serviceLog) open(path string) {
	l.path, l.from = path, 0
	if info, err := os.Stat(path); err == nil {
		l.from = info.Size()
	}
}

// lastWords returns the line that names the crash of the service, or "". It has no path.
func (l serviceLog) lastWords() string {
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < l.from { // it was truncated
		l.from = 0
	}
	for lines := bufio.NewScanner(io.NewSectionReader(f, l.from, 2*maxServiceLog)); lines.Scan(); {
		line := strings.TrimPrefix(lines.Text(), "[signal ")
		for _, start := range []string{"SIG", "panic: ", "fatal error: "} {
			if strings.HasPrefix(line, start) && !strings.Contains(line, "/") {
				return strings.ToValidUTF8(line[:min(len(line), maxLastWords)], "")
			}
		}
	}
	return ""
}
