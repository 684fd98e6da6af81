package podman

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/wisbox/wisbox/sandbox"
)

// logFileSize is the size in bytes at which conmon removes its file with a companion's output, and begins a new one.
// Beside the text, each line has some 45 bytes. A file has what is promised, sandbox.CompanionOutput bytes and
// sandbox.CompanionLines lines, several times, so that the kept former one is also enough if conmon was a little faster
// than keepLog.
const logFileSize = 8 << 20

// Links in the directory of conmon's file: to its current file, and to the former one.
const (
	heldLog   = ".wisbox-held"
	formerLog = ".wisbox-former"
)

// serviceLogs returns the directory of a companion's output, if that isn't in Podman's own. Rootless, with IDs of its own, the
// container has a directory that only its root may read, so that nobody could keep what is in it.
func (b *Backend) serviceLogs(name string) string {
	return filepath.Join(b.opts.StateDir, "services", name)
}

// newServiceLog makes that directory, empty, and returns the path of conmon's file.
func (b *Backend) newServiceLog(name string) (string, error) {
	dir := b.serviceLogs(name)
	err := os.RemoveAll(dir) // of a container that somebody else removed
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	return filepath.Join(dir, "ctr.log"), err
}

// dropServiceLog removes what a removed container may have left there.
func (b *Backend) dropServiceLog(name string) {
	if err := os.RemoveAll(b.serviceLogs(name)); err != nil {
		b.log.Warn("the output of a removed service stays", "name", name, "error", err)
	}
}

// logPath returns the file with a companion's output.
func (s *Sandbox) logPath(ctx context.Context, name string) (string, error) {
	data, err := s.b.inspect(ctx, s.companionName(name))
	if err != nil {
		return "", err
	}
	if data.HostConfig == nil || data.HostConfig.LogConfig == nil {
		return "", nil
	}
	return data.HostConfig.LogConfig.Path, nil
}

// keepLogOf keeps the output of a companion until the handle is closed, or the companion is removed.
func (s *Sandbox) keepLogOf(ctx context.Context, name string) {
	path, err := s.logPath(ctx, name)
	if err != nil || path == "" {
		return
	}
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	if s.logs.closed || s.logs.kept[path] {
		return
	}
	keep, err := newLogKeeper(path)
	if err != nil { // e.g. Podman's files aren't this user's; the current file can still be read
		s.b.log.Info("only the newest file of a service's output is kept", "sandbox", s.spec.ID, "service", name, "error", err)
		return
	}
	if s.logs.kept == nil {
		s.logs.kept, s.logs.end = map[string]bool{}, make(chan struct{})
	}
	s.logs.kept[path] = true
	end := s.logs.end
	s.logs.all.Go(func() {
		keep.run(end)
		s.logs.mu.Lock()
		delete(s.logs.kept, path)
		s.logs.mu.Unlock()
	})
}

// endLogs ends all keepers.
func (s *Sandbox) endLogs() {
	s.logs.mu.Lock()
	if !s.logs.closed && s.logs.end != nil {
		close(s.logs.end)
	}
	s.logs.closed = true
	s.logs.mu.Unlock()
	s.logs.all.Wait()
}

// logKeepers are the keepers of a sandbox's companions.
type logKeepers struct {
	all sync.WaitGroup

	mu     sync.Mutex
	closed bool
	kept   map[string]bool // by path
	end    chan struct{}
}

// logLine is an entry of conmon's file.
type logLine struct {
	stderr bool
	text   []byte
	whole  bool // it ends here; otherwise the next entry of its stream continues it
}

// readLog returns the entries of conmon's files, the oldest first: at least the newest logFileSize bytes of those that
// are kept.
func readLog(path string) ([]logLine, error) {
	var files [][]byte // the newest first
	var seen []os.FileInfo
	total := 0
	for _, suffix := range []string{"", heldLog, formerLog} {
		if total >= logFileSize {
			break
		}
		text, info, err := readLogFile(path+suffix, seen)
		if errors.Is(err, fs.ErrNotExist) && suffix != "" {
			continue
		}
		if err != nil {
			return nil, err
		}
		files, seen, total = append(files, text), append(seen, info), total+len(text)
	}
	var all []logLine
	for _, file := range slices.Backward(files) {
		for line := range bytes.Lines(file) {
			if l, ok := parseLogLine(line); ok {
				all = append(all, l)
			}
		}
	}
	return all, nil
}

// readLogFile reads a file, or nothing if it is one of those that were read.
func readLogFile(path string, seen []os.FileInfo) ([]byte, os.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	for _, other := range seen {
		if os.SameFile(info, other) {
			return nil, info, nil
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, 2*logFileSize))
	return text, info, err
}

// parseLogLine parses "TIME STREAM TAG TEXT\n". It returns false for a line that isn't completely written yet.
func parseLogLine(line []byte) (l logLine, ok bool) {
	text, ended := bytes.CutSuffix(line, []byte("\n"))
	fields := bytes.SplitN(text, []byte(" "), 4)
	if !ended || len(fields) != 4 {
		return l, false
	}
	return logLine{stderr: string(fields[1]) == "stderr", whole: string(fields[2]) == "F", text: fields[3]}, true
}

// newest returns the newest entries that belong to at most so many lines, within the bounds of what is kept.
func newest(all []logLine, lines int) []logLine {
	left, begun := sandbox.CompanionOutput, map[bool]bool{}
	for i, l := range slices.Backward(all) {
		if l.whole || !begun[l.stderr] { // the end of a line
			lines--
		}
		left -= len(l.text) + 1
		if lines < 0 || left < 0 {
			return all[i+1:]
		}
		begun[l.stderr] = true
	}
	return all
}

// output writes the newest lines of a companion's output; 0 means all, a negative number none. It doesn't ask Podman
// for the last lines: 4.3 cuts them wrongly if one has no end.
func (s *Sandbox) output(ctx context.Context, name string, lines int, stdout, stderr io.Writer) error {
	path, err := s.logPath(ctx, name)
	if err != nil || lines < 0 {
		return err
	}
	all, err := readLog(path)
	if err != nil { // Podman's files aren't this user's
		if all, err = s.readLogOfService(ctx, name); err != nil {
			return err
		}
	}
	if lines == 0 || lines > sandbox.CompanionLines {
		lines = sandbox.CompanionLines
	}
	for _, l := range newest(all, lines) {
		to := stdout
		if l.stderr {
			to = stderr
		}
		if to == nil {
			continue
		}
		if l.whole {
			l.text = append(slices.Clip(l.text), '\n')
		}
		if _, err := to.Write(l.text); err != nil {
			return err
		}
	}
	return nil
}

// readLogOfService reads the same from Podman's service.
func (s *Sandbox) readLogOfService(ctx context.Context, name string) ([]logLine, error) {
	var all []logLine
	lines := func(stderr bool) io.Writer {
		return frames(func(frame []byte) {
			for line := range bytes.Lines(frame) {
				text, whole := bytes.CutSuffix(line, []byte("\n"))
				all = append(all, logLine{stderr: stderr, whole: whole, text: bytes.Clone(text)})
			}
		})
	}
	err := s.b.do(ctx, request{
		method: http.MethodGet, path: containerPath(s.companionName(name), "/logs"), query: url.Values{"stdout": {"true"}, "stderr": {"true"}},
		sink: &unframed{stdout: lines(false), stderr: lines(true)},
	})
	return all, err
}

// frames is a writer that calls a function.
type frames func(p []byte)

// Write implements [io.Writer].
func (f frames) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// lastWords returns the end of a companion's output for an error.
func (s *Sandbox) lastWords(ctx context.Context, c sandbox.Companion) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), wordsWait)
	defer cancel()
	var out bytes.Buffer
	if err := s.output(ctx, c.Name, wordsLines, &out, &out); err != nil {
		s.b.log.Debug("read the output of a service", "service", c.Name, "error", err)
	}
	text := strings.TrimSpace(strings.ToValidUTF8(out.String(), "?"))
	if text == "" {
		return "; it printed nothing"
	}
	return "; the end of its output:\n" + text[max(0, len(text)-wordsBytes):]
}
