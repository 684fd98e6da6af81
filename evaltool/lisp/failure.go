package lisp

import (
	"context"
	"regexp"
	"strings"
	"sync"
)

type noParams struct{}

// LastError is the result of describe-last-error and get-backtrace: null if there was no error.
type LastError struct {
	Error *Condition `json:"error"`

	text string
}

// Text implements tool.New's interface.
func (e LastError) Text() string { return e.text }

const noError = "No error has been signalled in this session."

func (l *Lisp) last() *Condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

func (l *Lisp) lastError(context.Context, noParams) (LastError, error) {
	c := l.last()
	if c == nil {
		return LastError{text: noError}, nil
	}
	return LastError{c.shown(), "Type: " + c.Type + "\nMessage: " + c.Message}, nil
}

type backtraceParams struct {
	MaxFrames int `json:"max-frames,omitempty" default:"20" min:"1" max:"100" jsonschema:"frames to show"`
}

func (l *Lisp) backtrace(_ context.Context, p backtraceParams) (LastError, error) {
	c := l.last()
	if c == nil {
		return LastError{text: noError}, nil
	}
	short := *c
	short.Backtrace = c.Backtrace[:min(len(c.Backtrace), p.MaxFrames)]
	lines := append([]string{"Backtrace of " + c.Type + ":"}, numbered(c.Backtrace, p.MaxFrames)...)
	if len(c.Backtrace) == 0 {
		lines = append(lines, "(no frames)")
	}
	return LastError{&short, strings.Join(lines, "\n")}, nil
}

// Reset is the result of reset-session.
type Reset struct {
	Package string `json:"package"`
}

// Text implements tool.New's interface.
func (r Reset) Text() string {
	return "Session reset: all definitions are gone, the package is " + r.Package + "."
}

// reset ends SBCL, so that no definition can stay. The next call starts it.
func (l *Lisp) reset(ctx context.Context, _ noParams) (Reset, error) {
	if err := l.take(ctx); err != nil {
		return Reset{}, err
	}
	defer l.evaluating.Unlock()
	l.end()
	l.started = true // definitions of earlier sessions are gone too
	l.forget()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = nil
	return Reset{"COMMON-LISP-USER"}, nil
}

// runtimeNoise matches the output of SBCL's runtime besides the condition that it signals; the text differs between
// versions.
var runtimeNoise = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(INFO: )?(Control|Binding|Alien) stack guard page (unprotected|reprotected|re-protected|temporarily disabled).*\n` +
		`|^Heap exhausted during allocation: (?s:.*?)\n   \*STOP-FOR-GC-PENDING\* = \w+\n(Collection trigger variables:\n(   \w+ = \d+\n)*)?`)
})
