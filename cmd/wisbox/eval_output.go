package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/wisbox/wisbox/cmd/wisbox/internal/streams"
	"github.com/wisbox/wisbox/evaltool"
	"github.com/wisbox/wisbox/tool"
)

// evaluation is the part of a result that is shown after the live output.
type evaluation struct {
	Value   *string            `json:"value_repr"`
	Status  string             `json:"status"`
	Message string             `json:"message"`
	Display []evaltool.Display `json:"display"`
}

func evaluationOf(res *tool.Result) (evaluation, error) {
	var e evaluation
	raw, err := json.Marshal(res.Value)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(raw, &e)
}

// liveOutput prints the output of code while the code runs.
type liveOutput struct {
	out, err io.Writer
	raw      bool                   // don't make the output printable
	object   func(*evaltool.Object) // also gets displayed objects; may be nil

	midline bool // the last line on err is unfinished
}

func (l *liveOutput) part(p evaltool.Part) {
	switch {
	case p.Stdout != "" && l.raw:
		fmt.Fprint(l.out, p.Stdout)
	case p.Stdout != "":
		fmt.Fprint(l.out, streams.Printable(p.Stdout))
	case p.Stderr != "":
		fmt.Fprint(l.err, streams.Printable(p.Stderr))
		l.midline = !strings.HasSuffix(p.Stderr, "\n")
	case p.Shown != nil && !p.Shown.Main:
		fmt.Fprintln(l.out, streams.Printable(p.Shown.Text))
	case p.Raised != nil:
		l.line(strings.TrimSuffix(p.Raised.Traceback, "\n"))
	}
	if p.Shown != nil && l.object != nil {
		l.object(p.Shown)
	}
}

// line writes one or more lines to err.
func (l *liveOutput) line(text string) {
	if l.midline {
		fmt.Fprintln(l.err)
	}
	l.midline = false
	fmt.Fprintln(l.err, streams.Printable(text))
}

// end prints the part of the result that is known only at the end.
func (l *liveOutput) end(res *tool.Result) error {
	e, err := evaluationOf(res)
	if err != nil {
		return err
	}
	if e.Status == evaltool.StatusTimedOut {
		l.line(evaltool.TimeoutText)
	}
	if e.Value != nil {
		fmt.Fprintln(l.out, streams.Printable(*e.Value))
	}
	if e.Message != "" {
		l.line("wisbox: " + e.Message)
	}
	return nil
}
