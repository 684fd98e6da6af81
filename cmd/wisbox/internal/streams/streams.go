// Package streams has a command's standard streams and signals, in the same way for the program that people start and for
// the one that does most of the work.
package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/wisbox/wisbox/tool/answer"
)

// Output is stdout or stderr. If its reader goes away, as in `| head -1`, the command cleans up and
// ends as if by SIGPIPE. If a write fails for another reason, the command fails.
type Output struct {
	File *os.File
	End  context.CancelCauseFunc // ends the command
}

func (o Output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	switch {
	case errors.Is(err, syscall.EPIPE):
		o.End(Signalled{syscall.SIGPIPE})
	case err != nil:
		o.End(Lost{err})
	}
	return n, err
}

// Fd lets callers find out whether this is a terminal.
func (o Output) Fd() uintptr { return o.File.Fd() }

// Lost is the cause of a context that ended because a write to stdout or stderr failed.
type Lost struct{ error }

// Unwrap returns the error of the write.
func (l Lost) Unwrap() error { return l.error }

// Report is the error of the command.
func (l Lost) Report() *answer.Error {
	cause := l.error
	if inner := errors.Unwrap(cause); inner != nil { // without the path of the file
		cause = inner
	}
	return answer.Errorf(answer.Unavailable, "the output can't be written: %s", cause).Because(l)
}

// Input returns the input of a program without a terminal; nil is /dev/null. Without typed, it doesn't read a terminal:
// programs that read a pipe if they have one would wait for it, and the terminal would stop this process in the
// background.
func Input(f *os.File, typed bool) io.Reader {
	st, err := f.Stat()
	if err != nil { // it is closed
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(st, null) {
		return nil
	}
	if !typed && term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// Waits returns the function that says on w for what a command waits, once for each.
func Waits(w io.Writer) func(text string) {
	var mu sync.Mutex
	said := map[string]bool{}
	return func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(text, answer.Waits) && !said[text] {
			said[text] = true
			fmt.Fprintln(w, "wisbox:", text)
		}
	}
}
