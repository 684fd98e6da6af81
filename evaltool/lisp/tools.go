package lisp

import (
	"context"
	"math"
	"unicode/utf8"

	"github.com/wisbox/wisbox/tool"
)

// About explains to a model in one paragraph what evaluation is for.
const About = `evaluate-lisp evaluates Common Lisp; its definitions stay for the session.`

// MaxCode is the maximum number of characters of code in one call.
const MaxCode = 100_000

// Tools returns the tools, evaluate-lisp first. The tools of a nil Lisp can be listed but not called.
func (l *Lisp) Tools() []tool.Tool {
	change := func(name, title, text string) tool.Spec {
		return tool.Spec{Name: name, Title: title, Description: text, Destructive: true, Effect: tool.ProgramEffect}
	}
	look := func(name, title, text string) tool.Spec {
		return tool.Spec{Name: name, Title: title, Description: text, ReadOnly: true}
	}
	return []tool.Tool{
		tool.New(change("evaluate-lisp", "Evaluate Common Lisp", l.Guidance()), l.evaluate),
		tool.New(change("compile-form", "Compile Common Lisp",
			"Compile Common Lisp without running it, and return errors, warnings and compiler notes. Macros of the session are expanded."), l.compile),
		tool.New(change("time-execution", "Time Common Lisp",
			"Evaluate Common Lisp, and return real, run and GC time in milliseconds, bytes consed, the values and the output."), l.time),
		tool.New(tool.Spec{Name: "configure-limits", Title: "Limits of Lisp evaluations", Idempotent: true,
			Description: "Set timeout (seconds, 0 is none) and max-output (characters of each stream and of the values) of Lisp evaluations; without arguments, only report them."}, l.configure),
		tool.New(look("validate-syntax", "Check Lisp syntax",
			"Read Common Lisp without evaluating it, and report where it is invalid, e.g. an unclosed form."), l.validate),
		tool.New(change("macroexpand-form", "Expand a macro",
			"Expand one form once, or with full all macros in it."), l.expand),
		tool.New(look("describe-symbol", "Describe a symbol",
			"Describe what a symbol names: function with its lambda list, variable with its value, class, documentation. name may have a package: cl:mapcar."), l.describe),
		tool.New(look("apropos-search", "Find symbols",
			"List symbols whose name contains pattern, in one package or in all, optionally of one type."), l.apropos),
		tool.New(look("list-definitions", "List definitions",
			"List the session's definitions: functions, macros, variables, classes, packages."), l.definitions),
		tool.New(change("reset-session", "Reset Lisp",
			"Restart Lisp: the session's definitions are gone, the package is CL-USER. Limits stay."), l.reset),
		tool.New(look("describe-last-error", "Last Lisp error",
			"Return type and message of the last error of an evaluation in this session."), l.lastError),
		tool.New(look("get-backtrace", "Last Lisp backtrace",
			"Return the stack at the last error of an evaluation, innermost frame first."), l.backtrace),
	}
}

// Guidance explains to a model how to use Lisp.
func (l *Lisp) Guidance() string {
	return `Evaluate Common Lisp (SBCL) in the session's container. Definitions, variables and the package chosen by in-package stay for later calls.
All forms of code are read first, so a reader error means that nothing ran, and pkg:name can be read only after the call that made pkg. Then each is evaluated; the last one's values are shown as lines "=> value", after sections [stdout], [stderr] and [warnings].
An error is shown as [ERROR] with its type, message and backtrace; definitions stay. Input streams are at their end; #. is refused; exit is refused. An endless evaluation ends with [TIMEOUT] at the limit of configure-limits (30 seconds) and keeps definitions too.`
}

type codeParams struct {
	Code    string `json:"code" jsonschema:"Common Lisp forms"`
	Package string `json:"package,omitempty" jsonschema:"package to read and evaluate in, for this call only; default the session's"`
}

type evaluateParams struct {
	Code        string `json:"code" jsonschema:"Common Lisp forms"`
	Package     string `json:"package,omitempty" jsonschema:"package to read and evaluate in, for this call only; default the session's"`
	CaptureTime bool   `json:"capture-time,omitempty" jsonschema:"add a line with the time and memory that the evaluation took"`
}

func checkLength(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return tool.Errorf(tool.Invalid, "%s has %d characters; the maximum is %d", field, n, most).In(field)
	}
	return nil
}

// run sends one request on code.
func (l *Lisp) run(ctx context.Context, what op, code, pkg string) (*reply, request, error) {
	if err := checkLength("code", code, MaxCode); err != nil {
		return nil, request{}, err
	}
	if err := checkLength("package", pkg, maxName); err != nil {
		return nil, request{}, err
	}
	r := l.request(what)
	r.Code, r.Package = code, pkg
	rep, err := l.ask(ctx, r)
	return rep, r, err
}

func (l *Lisp) evaluate(ctx context.Context, p evaluateParams) (Evaluation, error) {
	rep, r, err := l.run(ctx, opEvaluate, p.Code, p.Package)
	if err != nil {
		return Evaluation{}, err
	}
	e := rep.evaluation(r)
	if !p.CaptureTime {
		e.Timing = nil
	}
	return e, nil
}

// evaluation returns the reply as the result of evaluate-lisp.
func (rep *reply) evaluation(r request) Evaluation {
	e := Evaluation{
		Status: rep.status, Stdout: rep.stdout.Text, StdoutDropped: rep.stdout.Dropped, Stderr: rep.stderr.Text, StderrDropped: rep.stderr.Dropped,
		Warnings: rep.Warnings, Values: []string{}, ValuesDropped: rep.answer.MoreValues, Error: rep.Error.shown(), Timing: rep.Timing, Package: rep.Package, Notes: rep.notes,
	}
	if rep.late == StatusTimedOut && rep.status != StatusOK && rep.status != StatusError {
		e.TimeoutS = int(math.Ceil(r.timeout.Seconds()))
	}
	for _, v := range rep.answer.Values {
		e.Values = append(e.Values, v.cut())
	}
	return e
}

// shown returns the condition with the frames that an error shows.
func (c *Condition) shown() *Condition {
	if c == nil {
		return nil
	}
	short := *c
	short.Backtrace = c.Backtrace[:min(len(c.Backtrace), errorFrames)]
	return &short
}
