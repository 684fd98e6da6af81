package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// Bounds of the history of wisbox repl.
const (
	historyLines     = 1000
	historyLineBytes = 4 << 10
	historyBytes     = 1 << 20 // of the file; a longer one is cut to its newest lines
)

// history has the lines typed at prompts, the newest last, and their file, with one line each. If
// the file can't be read or written, history silently keeps nothing. It implements [term.History].
type history struct {
	path  string // "" for none
	lines []string
}

// historyFile returns the path in the user's state directory; "" if there is none.
func historyFile() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "wisbox", "repl_history")
}

func openHistory(path string) *history {
	h := &history{path: path}
	if path == "" {
		return h
	}
	if os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		h.path = ""
		return h
	}
	in, err := os.Lstat(path)
	if err != nil {
		return h
	}
	if !in.Mode().IsRegular() {
		h.path = ""
		return h
	}
	raw, err := readEnd(path, in.Size())
	if err != nil {
		h.path = ""
		return h
	}
	for line := range strings.Lines(string(raw)) {
		h.remember(strings.TrimSuffix(line, "\n"))
	}
	h.keep()
	return h
}

// keep makes an existing file private, and cuts a long one.
func (h *history) keep() {
	f, err := os.OpenFile(h.path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_ = f.Chmod(0o600)
	if in, err := f.Stat(); err == nil && in.Size() > historyBytes {
		h.cut(in.Size())
	}
}

// readEnd reads the last lines of a file.
func readEnd(path string, size int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw := make([]byte, min(size, historyBytes))
	n, err := f.ReadAt(raw, max(0, size-historyBytes))
	if n == 0 && size > 0 {
		return nil, err
	}
	if raw = raw[:n]; size > historyBytes {
		_, raw, _ = bytes.Cut(raw, []byte("\n"))
	}
	return raw, nil
}

// cut replaces the file by its newest lines, including those of other prompts.
func (h *history) cut(size int64) {
	raw, err := readEnd(h.path, size)
	if err != nil {
		return
	}
	lines := bytes.SplitAfter(raw, []byte("\n"))
	lines = lines[max(0, len(lines)-1-historyLines):]                // the last one is empty
	tmp, err := os.CreateTemp(filepath.Dir(h.path), "repl_history-") // mode 0600
	if err != nil {
		return
	}
	_, err = tmp.Write(bytes.Join(lines, nil))
	if closed := tmp.Close(); err == nil && closed == nil {
		err = os.Rename(tmp.Name(), h.path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
}

// remember keeps the line and reports whether it did. It skips invalid, blank and long lines, and
// repetitions of the last one.
func (h *history) remember(line string) bool {
	last := len(h.lines) - 1
	if strings.TrimSpace(line) == "" || len(line) > historyLineBytes || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\x00") || last >= 0 && h.lines[last] == line {
		return false
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-historyLines):]
	return true
}

// Add implements term.History. A line that begins with a space isn't saved to the file.
func (h *history) Add(line string) {
	if !h.remember(line) || h.path == "" || line[0] == ' ' {
		return
	}
	f, err := os.OpenFile(h.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(line + "\n")
	if in, err := f.Stat(); err == nil && in.Size() > historyBytes {
		h.cut(in.Size())
	}
}

// Len implements term.History.
func (h *history) Len() int { return len(h.lines) }

// At implements term.History: 0 is the newest.
func (h *history) At(n int) string { return h.lines[len(h.lines)-1-n] }
