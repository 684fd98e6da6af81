package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/rlm"
	"github.com/wisbox/wisbox/tool"
)

// moveLog prints a line for each operation of a run and for each other message, indented by the
// depth of its conversation.
type moveLog struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *moveLog) operation(o rlm.Operation) {
	what := fmt.Sprintf("%d chars", o.Chars)
	switch {
	case o.Err != nil:
		what = "error: " + tool.AsError(o.Err).Message
	case o.Failure != "":
		what = "the code failed: " + lastLine(o.Failure)
	case o.Cached:
		what += ", cached"
	}
	l.line(o.Depth, o.Turn, "%s %s -> %s: %s, %s", o.Mode, o.Step.Op, o.Step.Bind, what, o.Took.Round(10*time.Microsecond))
}

// turn prints the messages that aren't operations, and the end.
func (l *moveLog) turn(t rlm.Turn) {
	switch {
	case t.Move.Mode == "":
		l.line(t.Depth, t.Number, "no move: %s", tool.AsError(t.Err).Message)
	case t.Move.Mode == rlm.ModeFinal && t.Err == nil:
		l.line(t.Depth, t.Number, "final")
	case t.Err != nil && t.Move.Mode != rlm.ModeExplore:
		l.line(t.Depth, t.Number, "%s refused: %s", t.Move.Mode, tool.AsError(t.Err).Message)
	case t.Move.Mode == rlm.ModeCommit:
		l.line(t.Depth, t.Number, "commit done -> %s", t.Move.Output)
	}
}

func (l *moveLog) line(depth, turn int, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%s%d: %s\n", strings.Repeat("  ", depth), turn, streams.Printable(fmt.Sprintf(format, args...)))
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}
