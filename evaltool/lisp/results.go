package lisp

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Condition is an unhandled condition, with the stack at the signal.
type Condition struct {
	Type      string   `json:"type"`
	Message   string   `json:"message"`
	Backtrace []string `json:"backtrace,omitempty"` // innermost first
}

// Warning is a signalled warning; Style marks a style warning.
type Warning struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Style   bool   `json:"style,omitempty"`
}

// label returns the beginning of a line of [warnings]. For a style warning it is always the same, since SBCL has many
// types of them.
func (w Warning) label() string {
	if w.Style {
		return "STYLE-WARNING"
	}
	return w.Type
}

// Timing is the time and memory that an evaluation took.
type Timing struct {
	RealMicros int64 `json:"real_us"`
	RunMicros  int64 `json:"run_us"`
	GCMicros   int64 `json:"gc_us"`
	Bytes      int64 `json:"bytes_consed"`
}

// Evaluation is the result of evaluate-lisp. Its Text has the parts in order.
type Evaluation struct {
	Status        Status     `json:"status"`
	Stdout        string     `json:"stdout,omitempty"`
	StdoutDropped int64      `json:"stdout_dropped,omitempty"` // characters over max-output
	Stderr        string     `json:"stderr,omitempty"`
	StderrDropped int64      `json:"stderr_dropped,omitempty"` // characters over max-output
	Warnings      []Warning  `json:"warnings,omitempty"`
	Values        []string   `json:"values"` // at most 1,000
	ValuesDropped int        `json:"values_dropped,omitempty"`
	Error         *Condition `json:"error,omitempty"`
	Timing        *Timing    `json:"timing,omitempty"`
	Package       string     `json:"package,omitempty"` // the session's, after the call
	Notes         []string   `json:"notes,omitempty"`
	TimeoutS      int        `json:"timeout_seconds,omitempty"` // the limit that a timed out call exceeded
}

// Failed implements tool.New's interface.
func (e Evaluation) Failed() bool { return e.Status != StatusOK }

// Text implements tool.New's interface.
func (e Evaluation) Text() string {
	parts := e.before()
	parts = append(parts, e.end()...)
	if e.Timing != nil {
		parts = append(parts, e.Timing.line())
	}
	return strings.Join(append(parts, comments(e.Notes)...), "\n")
}

// before returns the sections before the values or the error.
func (e Evaluation) before() []string {
	parts := append(stream("[stdout]", e.Stdout, e.StdoutDropped), stream("[stderr]", e.Stderr, e.StderrDropped)...)
	var warnings []string
	for _, w := range e.Warnings {
		warnings = append(warnings, w.label()+": "+w.Message)
	}
	return append(parts, output("[warnings]", strings.Join(warnings, "\n"))...)
}

// end returns the values, or the reason if there are none.
func (e Evaluation) end() []string {
	switch {
	case e.TimeoutS > 0:
		return []string{timeoutText(e.TimeoutS, e.Status != StatusEnded)}
	case e.Error != nil:
		return []string{e.Error.text()}
	case e.Status == StatusOK && len(e.Values) == 0:
		return []string{"; No values"}
	case e.Status == StatusCancelled:
		return []string{"[CANCELLED] The evaluation was interrupted; definitions are kept"}
	}
	var lines []string
	for _, v := range e.Values {
		lines = append(lines, "=> "+v)
	}
	if e.ValuesDropped > 0 {
		lines = append(lines, fmt.Sprintf("; %s more values are not shown", thousands(int64(e.ValuesDropped))))
	}
	return lines
}

// timeoutText returns the limit and how to raise it.
func timeoutText(seconds int, kept bool) string {
	text := fmt.Sprintf("[TIMEOUT] Evaluation exceeded %d second(s)\nUse configure-limits to change the timeout.", seconds)
	if kept {
		text += " Definitions are kept."
	}
	return text
}

func comments(notes []string) []string {
	lines := make([]string, len(notes))
	for i, n := range notes {
		lines[i] = "; Note: " + n
	}
	return lines
}

// stream returns a section, or nothing without output.
func stream(header, text string, dropped int64) []string {
	if text == "" && dropped == 0 {
		return nil
	}
	return output(header, excerpt{text, dropped}.cut())
}

// output returns a section: a header, a text without blank lines at its start and blanks at its end, and a blank line; or nothing if
// the text is blank.
func output(header, text string) []string {
	text = strings.TrimRightFunc(text, unicode.IsSpace)
	if text == "" {
		return nil
	}
	begin := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsSpace(r) })
	return []string{header, text[strings.LastIndexByte(text[:begin], '\n')+1:], ""}
}

// cut returns the text, with a line about the missing characters.
func (x excerpt) cut() string {
	if x.Dropped == 0 {
		return x.Text
	}
	shown := int64(len([]rune(x.Text)))
	return fmt.Sprintf("%s\n[output cut: %s of %s characters shown; configure-limits changes max-output]", x.Text, thousands(shown), thousands(shown+x.Dropped))
}

// errorFrames is the number of frames of an error's backtrace; get-backtrace has more.
const errorFrames = 20

func (c *Condition) text() string {
	text := "[ERROR] " + c.Type + "\n" + c.Message
	if len(c.Backtrace) == 0 {
		return text
	}
	return text + "\n\n[Backtrace]\n" + strings.Join(numbered(c.Backtrace, errorFrames), "\n")
}

func numbered(frames []string, most int) []string {
	lines := make([]string, min(len(frames), most))
	for i := range lines {
		lines[i] = strconv.Itoa(i) + ": " + frames[i]
	}
	return lines
}

func (t Timing) line() string {
	return fmt.Sprintf("; Timing: %dms real, %dms run, %dms GC, %s bytes consed",
		t.RealMicros/1000, t.RunMicros/1000, t.GCMicros/1000, thousands(t.Bytes))
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
